// franz-go client program of the chaos run: a producer or a consumer, equivalent to librdkafka.py.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	chunk = 16
	flush = 50 * time.Millisecond
)

var (
	finish atomic.Bool
	out    = bufio.NewWriter(os.Stdout)
	outMu  sync.Mutex
)

func nowMs() int64 { return time.Now().UnixMilli() }

func tell(format string, values ...any) {
	outMu.Lock()
	defer outMu.Unlock()
	fmt.Fprintf(out, format+"\n", values...)
}

func flushOut() {
	outMu.Lock()
	defer outMu.Unlock()
	out.Flush()
}

// run holds adjacent records that are not reported yet.
type run struct {
	time, offset, length, sequence int64
	producer                       int
	epoch                          int32
}

// runs joins adjacent records per partition and reports them with a short delay.
type runs struct {
	mu   sync.Mutex
	acks bool
	open []*run
}

func newRuns(acks bool, partitions int) *runs {
	made := &runs{acks: acks, open: make([]*run, partitions)}
	go func() {
		for range time.Tick(flush) {
			made.tellAll()
		}
	}()
	return made
}

func (r *runs) add(partition int32, offset, sequence int64, producer int, epoch int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.open[partition]
	if last != nil && offset >= 0 && offset == last.offset+last.length && sequence == last.sequence+last.length &&
		producer == last.producer && epoch == last.epoch {
		last.length++
		return
	}
	r.tell(partition)
	r.open[partition] = &run{nowMs(), offset, 1, sequence, producer, epoch}
}

func (r *runs) tell(partition int32) {
	open := r.open[partition]
	if open == nil {
		return
	}
	r.open[partition] = nil
	if r.acks {
		tell("acked %d %d %d %d %d", open.time, partition, open.offset, open.length, open.sequence)
		return
	}
	tell("polled %d %d %d %d %d %d %d",
		open.time, partition, open.offset, open.length, open.producer, open.sequence, open.epoch)
}

func (r *runs) tellAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for partition := range r.open {
		r.tell(int32(partition))
	}
	flushOut()
}

// readCommands reads standard input: "finish" requests a clean end. When it closes, the run has ended and this program
// exits.
func readCommands() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "finish" {
			finish.Store(true)
		}
	}
	os.Exit(3)
}

func common(bootstrap string) []kgo.Opt {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.DialTimeout(2 * time.Second),
		kgo.RequestTimeoutOverhead(5 * time.Second),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.MetadataMaxAge(3 * time.Second),
		kgo.RetryBackoffFn(func(tries int) time.Duration { return min(time.Duration(tries)*50, 500) * time.Millisecond }),
		kgo.DisableClientMetrics(),
	}
	if user := os.Getenv("CHAOS_USER"); user != "" {
		options = append(options, login(user, os.Getenv("CHAOS_PASSWORD"), os.Getenv("CHAOS_AUTHORITY"))...)
	}
	return options
}

func login(user, password, authority string) []kgo.Opt {
	certificate, err := os.ReadFile(authority)
	if err != nil {
		panic(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(certificate)
	return []kgo.Opt{
		kgo.DialTLSConfig(&tls.Config{RootCAs: trusted}),
		kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()),
	}
}

func number(text string) int {
	found, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return found
}

func main() {
	go readCommands()
	arguments := os.Args[1:]
	bootstrap, topic, partitions := arguments[1], arguments[2], number(arguments[3])
	var err error
	if arguments[0] == "produce" {
		id, rate, size := number(arguments[4]), number(arguments[5]), number(arguments[6])
		err = produce(bootstrap, topic, partitions, id, rate, size, arguments[7])
	} else {
		err = consume(bootstrap, topic, partitions)
	}
	if err != nil {
		tell("note %d %s", nowMs(), strings.ReplaceAll(err.Error(), "\n", " "))
	}
	flushOut()
	if err != nil {
		os.Exit(1)
	}
}

func produce(bootstrap, topic string, partitions, id, rate, size int, acks string) error {
	options := append(common(bootstrap),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(10*time.Millisecond),
		kgo.ProduceRequestTimeout(5*time.Second),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.MaxBufferedRecords(100_000),
	)
	if acks == "all" {
		options = append(options, kgo.RequiredAcks(kgo.AllISRAcks()), kgo.StopProducerOnDataLossDetected())
	} else {
		options = append(options, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite(), kgo.RecordRetries(0))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	recorded := newRuns(true, partitions)
	sequences := make([]int64, partitions)
	budget, before, partition := 0.0, time.Now(), 0
	for !finish.Load() {
		now := time.Now()
		budget = min(budget+now.Sub(before).Seconds()*float64(rate), float64(rate))
		before = now
		for ; budget >= chunk; budget -= chunk {
			for range chunk {
				send(client, recorded, topic, int32(partition), id, sequences[partition], size)
				sequences[partition]++
			}
			partition = (partition + 1) % partitions
		}
		time.Sleep(10 * time.Millisecond)
	}
	deadline, cancel := context.WithTimeout(context.Background(), 150*time.Second)
	defer cancel()
	err = client.Flush(deadline)
	recorded.tellAll()
	return err
}

func send(client *kgo.Client, recorded *runs, topic string, partition int32, id int, sequence int64, size int) {
	value := bytes.Repeat([]byte("."), size)
	copy(value, fmt.Sprintf("%d %d %d ", id, partition, sequence))
	record := &kgo.Record{Topic: topic, Partition: partition, Value: value}
	client.Produce(context.Background(), record, func(record *kgo.Record, err error) {
		if err == nil {
			recorded.add(partition, record.Offset, sequence, id, -1)
			return
		}
		tell("failed %d %d 1 %d %s", nowMs(), partition, sequence, strings.SplitN(err.Error(), ":", 2)[0])
	})
}

func consume(bootstrap, topic string, partitions int) error {
	offsets := map[int32]kgo.Offset{}
	for partition := range partitions {
		offsets[int32(partition)] = kgo.NewOffset().At(0)
	}
	client, err := kgo.NewClient(append(common(bootstrap),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}),
		// Used only where the broker does not return the divergence: never skip records.
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(100*time.Millisecond),
	)...)
	if err != nil {
		return err
	}
	recorded := newRuns(false, partitions)
	for !finish.Load() {
		poll, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		fetches := client.PollFetches(poll)
		cancel()
		fetches.EachError(func(_ string, partition int32, err error) { onError(recorded, partition, err) })
		fetches.EachRecord(func(record *kgo.Record) { onRecord(recorded, record) })
	}
	recorded.tellAll()
	return nil
}

func onError(recorded *runs, partition int32, err error) {
	if errors.Is(err, context.DeadlineExceeded) {
		return
	}
	tell("note %d partition %d: %s", nowMs(), partition, strings.ReplaceAll(err.Error(), "\n", " "))
	var cut *kgo.ErrDataLoss
	if errors.As(err, &cut) {
		recorded.tellAll()
		tell("truncated %d %d %d %d", nowMs(), partition, cut.ConsumedTo, cut.ResetTo)
	}
}

func onRecord(recorded *runs, record *kgo.Record) {
	fields := strings.SplitN(string(record.Value), " ", 4)
	if len(fields) != 4 || fields[1] != strconv.Itoa(int(record.Partition)) {
		tell("strange %d %d %d a value of %d bytes", nowMs(), record.Partition, record.Offset, len(record.Value))
		return
	}
	sequence, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil {
		tell("strange %d %d %d %s", nowMs(), record.Partition, record.Offset, err)
		return
	}
	recorded.add(record.Partition, record.Offset, sequence, number(fields[0]), record.LeaderEpoch)
}
