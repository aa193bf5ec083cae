// Command consume reads ten records of the topic "orders" in a consumer group, and commits their offsets.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	bootstrap := cmp.Or(os.Getenv("BOOTSTRAP"), "127.0.0.1:9092")
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup("go-billing"),
		kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for count := 0; count < 10; {
		fetches := client.PollFetches(context.Background())
		if err := fetches.Err(); err != nil {
			log.Fatal(err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Println(string(record.Key), string(record.Value))
			count++
		})
		if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
			log.Fatal(err)
		}
	}
}
