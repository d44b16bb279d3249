package orders

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestAnOrderComesOutAsItWentIn(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(startLogdb(t)),
		kgo.AllowAutoTopicCreation(),
		kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()

	sent := &kgo.Record{Topic: "orders", Key: []byte("7"), Value: []byte("paid")}
	if err := client.ProduceSync(ctx, sent).FirstErr(); err != nil {
		t.Fatal(err)
	}
	fetches := client.PollFetches(ctx)
	if err := fetches.Err(); err != nil {
		t.Fatal(err)
	}
	got := fetches.Records()[0]
	if string(got.Key)+" "+string(got.Value) != "7 paid" {
		t.Fatalf("got %s %s", got.Key, got.Value)
	}
}
