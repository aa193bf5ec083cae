// Command produce writes ten records to the topic "orders", and waits until all in-sync replicas have them.
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
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.DefaultProduceTopic("orders"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for number := range 10 {
		record := kgo.KeyStringRecord(fmt.Sprintf("customer-%d", number%3), fmt.Sprintf("order %d", number))
		written, err := client.ProduceSync(context.Background(), record).First()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s-%d offset %d\n", written.Topic, written.Partition, written.Offset)
	}
}
