// Command transaction copies records from "orders" to "invoices", each exactly once: records and offsets are committed
// in one transaction.
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
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(bootstrap),
		kgo.TransactionalID("go-invoicing"),
		kgo.DefaultProduceTopic("invoices"),
		kgo.ConsumerGroup("go-invoicing"),
		kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	for count := 0; count < 10; {
		fetches := session.PollFetches(context.Background())
		if err := fetches.Err(); err != nil {
			log.Fatal(err)
		}
		if err := session.Begin(); err != nil {
			log.Fatal(err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			invoice := kgo.KeyStringRecord(string(record.Key), "invoice for "+string(record.Value))
			session.Produce(context.Background(), invoice, nil)
		})
		committed, err := session.End(context.Background(), kgo.TryCommit)
		if err != nil {
			log.Fatal(err)
		}
		if committed {
			count += fetches.NumRecords()
			fmt.Printf("committed %d records\n", count)
		}
	}
}
