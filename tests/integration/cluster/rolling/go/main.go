// franz-go and sarama during restarts: `program CLIENT HOST:PORT,… TOPIC`; what it prints is as in clients.py.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	name, servers, topic = os.Args[1], strings.Split(os.Args[2], ","), os.Args[3]
	stopped              atomic.Bool
)

func say(words ...any) { fmt.Println(words...) }

func check(err error) {
	if err != nil {
		say("x", err)
		os.Exit(1)
	}
}

func franz() {
	reader, err := kgo.NewClient(kgo.SeedBrokers(servers...), kgo.ConsumerGroup(name), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	check(err)
	go func() {
		for {
			fetches := reader.PollFetches(context.Background())
			fetches.EachError(func(_ string, _ int32, err error) { say("x", err) })
			fetches.EachRecord(func(one *kgo.Record) { say("r", string(one.Value)) })
		}
	}()
	producer, err := kgo.NewClient(kgo.SeedBrokers(servers...), kgo.DefaultProduceTopic(topic))
	check(err)
	for number := 0; !stopped.Load(); number++ {
		producer.Produce(context.Background(), kgo.StringRecord(strconv.Itoa(number)), func(one *kgo.Record, err error) {
			if err != nil {
				say("x", err)
			} else {
				say("a", string(one.Value))
			}
		})
		time.Sleep(10 * time.Millisecond)
	}
	check(producer.Flush(context.Background()))
}

type handler struct{}

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for one := range claim.Messages() {
		say("r", string(one.Value))
		session.MarkMessage(one, "")
	}
	return nil
}

func ibm() {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Producer.Idempotent, config.Producer.RequiredAcks, config.Net.MaxOpenRequests = true, sarama.WaitForAll, 1
	// a send that fails begins a new epoch, and sarama sends records that have their number already in it: two have one number
	config.Producer.Retry.Max, config.Metadata.Retry.Max = 100, 100
	config.Producer.Return.Successes = true
	group, err := sarama.NewConsumerGroup(servers, name, config)
	check(err)
	go func() {
		for {
			if err := group.Consume(context.Background(), []string{topic}, handler{}); err != nil {
				say("x", err)
				time.Sleep(100 * time.Millisecond)
			}
		}
	}()
	producer, err := sarama.NewAsyncProducer(servers, config)
	check(err)
	done := make(chan bool)
	go func() {
		for one := range producer.Successes() {
			value, _ := one.Value.Encode()
			say("a", string(value))
		}
		done <- true
	}()
	go func() {
		for one := range producer.Errors() {
			say("x", one.Err)
		}
	}()
	for number := 0; !stopped.Load(); number++ {
		producer.Input() <- &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(strconv.Itoa(number))}
		time.Sleep(10 * time.Millisecond)
	}
	producer.AsyncClose()
	<-done
}

func main() {
	go func() {
		bufio.NewReader(os.Stdin).ReadString('\n')
		stopped.Store(true)
	}()
	map[string]func(){"franz-go": franz, "sarama": ibm}[name]()
	say("sent")
	select {}
}
