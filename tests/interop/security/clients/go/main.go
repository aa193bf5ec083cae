// franz-go client: see test_clients.py for what it does and prints.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func env(name string) string { return os.Getenv("SECURE_" + name) }

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func common(bootstrap string, certificates ...tls.Certificate) []kgo.Opt {
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(must(os.ReadFile(env("CA"))))
	return []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.DialTLSConfig(&tls.Config{RootCAs: trusted, Certificates: certificates}),
		kgo.RecordDeliveryTimeout(4 * time.Second),
		kgo.RetryTimeout(5 * time.Second),
		kgo.UnknownTopicRetries(1),
	}
}

func withScram(password string) []kgo.Opt {
	mechanism := scram.Auth{User: env("USER"), Pass: password}.AsSha512Mechanism()
	return append(common(env("SCRAM")), kgo.SASL(mechanism))
}

func produce(options []kgo.Opt, topic, value string) error {
	client := must(kgo.NewClient(options...))
	defer client.Close()
	deadline, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return client.ProduceSync(deadline, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr()
}

func consume(options []kgo.Opt, topic, value string) bool {
	client := must(kgo.NewClient(append(options,
		kgo.ConsumerGroup("g-"+value), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...))
	defer client.Close()
	deadline, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for deadline.Err() == nil {
		found := false
		client.PollFetches(deadline).EachRecord(func(record *kgo.Record) { found = found || string(record.Value) == value })
		if found {
			return client.CommitUncommittedOffsets(deadline) == nil
		}
	}
	return false
}

func refusal(options []kgo.Opt, topic string) string {
	err := produce(options, topic, "refused")
	switch {
	case err == nil:
		return "accepted"
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return "not authorized"
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return "not authenticated"
	}
	panic(err)
}

func main() {
	allowed := withScram(env("PASSWORD"))
	if err := produce(allowed, "allowed", "franz-go"); err != nil {
		panic(err)
	}
	if !consume(allowed, "allowed", "franz-go") {
		panic("read nothing")
	}
	fmt.Println("scram: wrote and read")
	fmt.Println("forbidden topic:", refusal(allowed, "forbidden"))
	fmt.Println("wrong password:", refusal(withScram("wrong"), "allowed"))
	certificate := common(env("MTLS"), must(tls.LoadX509KeyPair(env("CERT"), env("KEY"))))
	if err := produce(certificate, "allowed", "franz-go"); err != nil {
		panic(err)
	}
	fmt.Println("certificate: wrote")
	fmt.Println("certificate, forbidden topic:", refusal(certificate, "forbidden"))
}
