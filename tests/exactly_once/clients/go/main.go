// Worker with franz-go: consume, transform and produce in transactions, equivalent to librdkafka.py.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	slowShare    = 0.03
	slowTime     = 400 * time.Millisecond
	abortedShare = 0.04
	batch        = 500
)

// endWithParent ends this process when its standard input closes.
func endWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

func fatal(name string, err error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	os.Exit(1)
}

func newSession(arguments []string) (*kgo.GroupTransactSession, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(arguments[0], ",")...),
		kgo.ConsumeTopics(arguments[1]),
		kgo.ConsumerGroup(arguments[3]),
		kgo.TransactionalID(arguments[5]),
		kgo.TransactionTimeout(30 * time.Second),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequireStableFetchOffsets(),
		kgo.AlwaysRetryEOF(),
	}
	if arguments[4] == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	} else {
		options = append(options, kgo.Balancers(kgo.RangeBalancer()), kgo.SessionTimeout(6*time.Second),
			kgo.HeartbeatInterval(time.Second))
	}
	return kgo.NewGroupTransactSession(options...)
}

func main() {
	arguments := os.Args[1:]
	target, name := arguments[2], arguments[5]+"."+arguments[6]
	go endWithParent()
	session, err := newSession(arguments)
	if err != nil {
		fatal(name, err)
	}
	for number := 1; ; {
		polled, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		fetches := session.PollRecords(polled, batch)
		cancel()
		for _, each := range fetches.Errors() {
			if !errors.Is(each.Err, context.DeadlineExceeded) {
				fmt.Fprintf(os.Stderr, "%s: %v\n", name, each.Err)
			}
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := transact(session, fetches, target, fmt.Sprintf("%s.%d", name, number)); err != nil {
			fatal(name, err)
		}
		number++
	}
}

func transact(session *kgo.GroupTransactSession, fetches kgo.Fetches, target, transaction string) error {
	if err := session.Begin(); err != nil {
		return err
	}
	promise := kgo.AbortingFirstErrPromise(session.Client())
	fetches.EachRecord(func(record *kgo.Record) {
		value := []byte(string(record.Key) + " " + transaction)
		out := &kgo.Record{Topic: target, Partition: record.Partition, Key: record.Key, Value: value}
		session.Produce(context.Background(), out, promise.Promise())
	})
	wanted := promise.Err() == nil && rand.Float64() >= abortedShare
	if wanted && rand.Float64() < slowShare {
		time.Sleep(slowTime)
	}
	if wanted {
		fmt.Printf("commit %s %d %d\n", transaction, time.Now().UnixMilli(), fetches.NumRecords())
	}
	committed, err := session.End(context.Background(), kgo.TransactionEndTry(wanted))
	if err != nil {
		return err // the outcome is unknown
	}
	if committed {
		fmt.Printf("committed %s\n", transaction)
	} else {
		fmt.Printf("aborted %s\n", transaction)
	}
	return nil
}
