// Producer and consumer with franz-go at its defaults; prints the seconds from the first record to the last.
//
// Arguments: produce|consume BOOTSTRAP TOPIC RECORDS SIZE PASSES. The consumer reads the topic PASSES times.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func produce(bootstrap, topic string, records, size int) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.DefaultProduceTopic(topic))
	check(err)
	ctx := context.Background()
	value := bytes.Repeat([]byte("x"), size)
	check(client.ProduceSync(ctx, kgo.SliceRecord(value)).FirstErr())
	var failed atomic.Int64
	started := time.Now()
	for range records {
		client.Produce(ctx, kgo.SliceRecord(value), func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Add(1)
			}
		})
	}
	check(client.Flush(ctx))
	took := time.Since(started)
	if failed.Load() > 0 {
		check(fmt.Errorf("%d records failed", failed.Load()))
	}
	fmt.Println(took.Seconds())
}

func consume(bootstrap, topic string, records, passes int) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	check(err)
	started := time.Time{}
	for range passes {
		starts := map[int32]kgo.EpochOffset{}
		for read := 0; read < records; {
			fetches := client.PollFetches(context.Background())
			check(fetches.Err())
			if started.IsZero() {
				started = time.Now()
			}
			fetches.EachPartition(func(partition kgo.FetchTopicPartition) {
				starts[partition.Partition] = kgo.EpochOffset{Epoch: -1, Offset: 0}
			})
			read += fetches.NumRecords()
		}
		client.SetOffsets(map[string]map[int32]kgo.EpochOffset{topic: starts})
	}
	fmt.Println(time.Since(started).Seconds())
}

func main() {
	records, err := strconv.Atoi(os.Args[4])
	check(err)
	size, err := strconv.Atoi(os.Args[5])
	check(err)
	passes, err := strconv.Atoi(os.Args[6])
	check(err)
	if os.Args[1] == "produce" {
		produce(os.Args[2], os.Args[3], records, size)
	} else {
		consume(os.Args[2], os.Args[3], records, passes)
	}
}
