// What applications do with franz-go and kadm: `program HOST:PORT[,HOST:PORT…] TASK TOPIC [CODEC]`.
// Records to produce come by stdin as JSON, what was seen goes to stdout as JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	address, task, topic = os.Args[1], os.Args[2], os.Args[3]
	ctx, _               = context.WithTimeout(context.Background(), 90*time.Second)
)

type record struct {
	Key       *string     `json:"key"`
	Value     *string     `json:"value"`
	Headers   [][2]string `json:"headers"`
	Timestamp int64       `json:"timestamp"`
}

type seen map[string]any

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func checked[T any](value T, err error) T {
	check(err)
	return value
}

func client(options ...kgo.Opt) *kgo.Client {
	begun := []kgo.Opt{kgo.SeedBrokers(strings.Split(address, ",")...), kgo.FetchMaxWait(50 * time.Millisecond), kgo.HeartbeatInterval(200 * time.Millisecond)}
	return checked(kgo.NewClient(append(begun, options...)...))
}

func bytes(text *string) []byte {
	if text == nil {
		return nil
	}
	return []byte(*text)
}

func text(data []byte) *string {
	if data == nil {
		return nil
	}
	found := string(data)
	return &found
}

// poll reads until done says so of all records.
func poll(from *kgo.Client, done func([]*kgo.Record) bool) []*kgo.Record {
	var found []*kgo.Record
	for !done(found) {
		fetches := from.PollFetches(ctx)
		check(fetches.Err())
		found = append(found, fetches.Records()...)
	}
	return found
}

func atLeast(count int) func([]*kgo.Record) bool {
	return func(found []*kgo.Record) bool { return len(found) >= count }
}

func values(records []*kgo.Record) []string {
	var found []string
	for _, one := range records {
		found = append(found, string(one.Value))
	}
	slices.Sort(found)
	return found
}

func records() any {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	var given []record
	check(json.NewDecoder(os.Stdin).Decode(&given))
	producer := client(kgo.ProducerBatchCompression(codecs[os.Args[4]]), kgo.AllowAutoTopicCreation())
	var sent []*kgo.Record
	for _, one := range given {
		made := &kgo.Record{Topic: topic, Key: bytes(one.Key), Value: bytes(one.Value), Timestamp: time.UnixMilli(one.Timestamp)}
		for _, header := range one.Headers {
			made.Headers = append(made.Headers, kgo.RecordHeader{Key: header[0], Value: []byte(header[1])})
		}
		sent = append(sent, made)
	}
	check(producer.ProduceSync(ctx, sent...).FirstErr())
	producer.Close()
	consumer := client(kgo.ConsumeTopics(topic), kgo.ConsumerGroup("of "+topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	var found []record
	for _, one := range poll(consumer, atLeast(len(given))) {
		read := record{Key: text(one.Key), Value: text(one.Value), Headers: [][2]string{}, Timestamp: one.Timestamp.UnixMilli()}
		for _, header := range one.Headers {
			read.Headers = append(read.Headers, [2]string{header.Key, string(header.Value)})
		}
		found = append(found, read)
	}
	check(consumer.CommitUncommittedOffsets(ctx))
	consumer.Close()
	return found
}

// A member of the group "g" that reads until it is left; what it was given is told to changed.
type member struct {
	*kgo.Client
	found   []*kgo.Record
	changed chan int
	left    chan struct{}
}

func join() *member {
	one := &member{changed: make(chan int, 100), left: make(chan struct{})}
	var lock sync.Mutex
	count := 0
	note := func(sign int) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			lock.Lock()
			defer lock.Unlock()
			count += sign * len(partitions[topic])
			one.changed <- count
		}
	}
	one.Client = client(
		kgo.ConsumeTopics(topic), kgo.ConsumerGroup("g"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(note(1)), kgo.OnPartitionsRevoked(note(-1)), kgo.OnPartitionsLost(note(-1)),
	)
	go func() {
		defer close(one.left)
		for {
			fetches := one.PollFetches(ctx)
			if fetches.IsClientClosed() {
				return
			}
			check(fetches.Err())
			one.found = append(one.found, fetches.Records()...)
			check(one.CommitUncommittedOffsets(ctx))
		}
	}()
	return one
}

func (one *member) until(count int) {
	for {
		select {
		case given := <-one.changed:
			if given == count {
				return
			}
		case <-ctx.Done():
			check(fmt.Errorf("never %d partitions", count))
		}
	}
}

func (one *member) leave() {
	one.CloseAllowingRebalance()
	<-one.left
}

func group() any {
	one := join()
	one.until(4)
	two := join()
	two.until(2)
	one.until(2)
	two.leave()
	one.until(4)
	producer := client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for partition := range int32(4) {
		late := &kgo.Record{Topic: topic, Partition: partition, Value: fmt.Appendf(nil, "late %d", partition)}
		check(producer.ProduceSync(ctx, late).FirstErr())
	}
	admin := kadm.NewClient(producer)
	for {
		lags := checked(admin.Lag(ctx, "g"))
		if lags["g"].Lag.Total() == 0 {
			break
		}
	}
	var groups [][3]any
	for _, described := range checked(admin.DescribeGroups(ctx, "g")) {
		groups = append(groups, [3]any{described.State, described.Protocol, len(described.Members)})
	}
	one.leave()
	producer.Close()
	return seen{"values": slices.Compact(values(append(one.found, two.found...))), "groups": groups}
}

func transactions() any {
	idempotent := client()
	check(idempotent.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("idempotent")}).FirstErr())
	idempotent.Close()
	producer := client(kgo.TransactionalID("go"), kgo.DefaultProduceTopic(topic))
	for number, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
		check(producer.BeginTransaction())
		check(producer.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(number))).FirstErr())
		check(producer.EndTransaction(ctx, end))
	}
	producer.Close()
	session := checked(kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(address, ",")...), kgo.TransactionalID("through go"), kgo.ConsumerGroup("of go"), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
	))
	var through []string
	for len(through) < 3 {
		check(session.Begin())
		fetches := session.PollFetches(ctx)
		check(fetches.Err())
		through = append(through, values(fetches.Records())...)
		for _, one := range fetches.Records() {
			check(session.ProduceSync(ctx, &kgo.Record{Topic: topic + "-through", Value: one.Value}).FirstErr())
		}
		if !checked(session.End(ctx, kgo.TryCommit)) {
			check(fmt.Errorf("the transaction of the session was aborted"))
		}
	}
	session.Close()
	read := func(level kgo.IsolationLevel, count int) []string {
		begin := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}
		consumer := client(kgo.ConsumePartitions(begin), kgo.FetchIsolationLevel(level))
		defer consumer.Close()
		return values(poll(consumer, atLeast(count)))
	}
	slices.Sort(through)
	return seen{"committed": read(kgo.ReadCommitted(), 3), "uncommitted": read(kgo.ReadUncommitted(), 4), "through": through}
}

func admin() any {
	producer, found := client(kgo.RecordPartitioner(kgo.ManualPartitioner())), seen{}
	admin := kadm.NewClient(producer)
	retention := func() string {
		described := checked(admin.DescribeTopicConfigs(ctx, topic))
		for _, config := range checked(described.On(topic, nil)).Configs {
			if config.Key == "retention.ms" {
				return config.MaybeValue()
			}
		}
		return ""
	}
	first := func(offsets kadm.ListedOffsets, err error) int64 {
		check(err)
		offset, _ := offsets.Lookup(topic, 0)
		check(offset.Err)
		return offset.Offset
	}
	_, err := admin.CreateTopic(ctx, 2, 1, map[string]*string{"retention.ms": kadm.StringPtr("5000")}, topic)
	check(err)
	_, err = admin.CreateTopic(ctx, 2, 1, nil, topic)
	found["again"] = strings.SplitN(fmt.Sprint(err), ":", 2)[0]
	check(checked(admin.UpdatePartitions(ctx, 3, topic)).Error())
	found["partitions"] = len(checked(admin.ListTopics(ctx, topic))[topic].Partitions)
	before := retention()
	altered := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: kadm.StringPtr("6000")}}
	check(checked(admin.AlterTopicConfigs(ctx, altered, topic))[0].Err)
	found["retention"] = []string{before, retention()}
	for second := range int64(3) {
		one := &kgo.Record{Topic: topic, Value: fmt.Append(nil, second+1), Timestamp: time.UnixMilli(1_700_000_001_000 + 1000*second)}
		check(producer.ProduceSync(ctx, one).FirstErr())
	}
	found["end"] = first(admin.ListEndOffsets(ctx, topic))
	found["at"] = first(admin.ListOffsetsAfterMilli(ctx, 1_700_000_001_500, topic))
	found["latest"] = first(admin.ListMaxTimestampOffsets(ctx, topic))
	var offsets kadm.Offsets
	offsets.AddOffset(topic, 0, 3, -1)
	offsets.AddOffset(topic, 1, 0, -1)
	check(admin.CommitAllOffsets(ctx, "read", offsets))
	found["groups"] = slices.DeleteFunc(checked(admin.ListGroups(ctx)).Groups(), func(name string) bool { return name != "read" })
	committed, _ := checked(admin.FetchOffsets(ctx, "read")).Lookup(topic, 0)
	found["committed"] = committed.At
	var second kadm.TopicsSet
	second.Add(topic, 1)
	check(checked(admin.DeleteOffsets(ctx, "read", second)).Error())
	found["left offsets"] = len(checked(admin.FetchOffsets(ctx, "read"))[topic])
	_, err = admin.DeleteGroup(ctx, "read")
	found["deleted"] = fmt.Sprint(err)
	var records kadm.Offsets
	records.AddOffset(topic, 0, 1, -1)
	check(checked(admin.DeleteRecords(ctx, records)).Error())
	found["begin"] = first(admin.ListStartOffsets(ctx, topic))
	var size int64
	for _, sizes := range checked(admin.DescribeAllLogDirs(ctx, nil)) {
		check(sizes.Error())
		largest, _ := sizes.LargestPartitionBySize()
		size = max(size, largest.Size)
	}
	found["size"] = size
	brokers := checked(admin.BrokerMetadata(ctx))
	var addresses []string
	for _, broker := range brokers.Brokers {
		addresses = append(addresses, fmt.Sprintf("%s:%d", broker.Host, broker.Port))
	}
	slices.Sort(addresses)
	found["cluster"] = []any{addresses, slices.Contains(brokers.Brokers.NodeIDs(), brokers.Controller), brokers.Cluster}
	check(checked(admin.DeleteTopics(ctx, topic)).Error())
	found["left"] = checked(admin.ListTopics(ctx)).Has(topic)
	return found
}

// On a cluster whose topic has one partition on the brokers 1 and 2, of several megabytes.
func replicas() any {
	one, found := client(), seen{}
	admin := kadm.NewClient(one)
	name := func(err error) string {
		var code *kerr.Error
		if errors.As(err, &code) {
			return code.Message
		}
		check(err)
		return ""
	}
	assign := func(ctx context.Context, brokers ...int32) string {
		var wanted kadm.AlterPartitionAssignmentsReq
		wanted.Assign(topic, 0, brokers)
		return name(checked(admin.AlterPartitionAssignments(ctx, wanted))[topic][0].Err)
	}
	var partition kadm.TopicsSet
	partition.Add(topic, 0)
	rate := kadm.AlterConfig{Op: kadm.SetConfig, Name: "follower.replication.throttled.rate", Value: kadm.StringPtr("50000")}
	for _, altered := range checked(admin.AlterBrokerConfigs(ctx, []kadm.AlterConfig{rate}, 1)) {
		check(altered.Err)
	}
	for _, config := range checked(checked(admin.DescribeBrokerConfigs(ctx, 2)).On("2", nil)).Configs {
		if config.Key == rate.Name {
			found["rate"] = config.MaybeValue()
		}
	}
	found["nothing to cancel"] = assign(ctx)
	found["another number"] = assign(kadm.ForbidAlterRf(ctx), 1)
	found["unknown broker"] = assign(ctx, 1, 9)
	found["moved"] = assign(ctx, 3, 1)
	moving := checked(admin.ListPartitionReassignments(ctx, partition))[topic][0]
	found["moving"] = seen{"replicas": moving.Replicas, "adding": moving.AddingReplicas, "removing": moving.RemovingReplicas}
	found["cancelled"] = assign(ctx)
	found["left"] = len(checked(admin.ListPartitionReassignments(ctx, partition)))
	for key, how := range map[string]kadm.ElectLeadersHow{"elected": kadm.ElectPreferredReplica, "elected unclean": kadm.ElectLiveReplica} {
		found[key] = name(checked(admin.ElectLeaders(ctx, how, partition))[topic][0].Err)
	}
	rate.Op = kadm.DeleteConfig
	for _, altered := range checked(admin.AlterBrokerConfigs(ctx, []kadm.AlterConfig{rate}, 3)) {
		check(altered.Err)
	}
	return found
}

type place struct {
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Value     string `json:"value"`
}

func placed(one *kgo.Record) place {
	return place{one.Partition, one.Offset, string(one.Value)}
}

// Produces until stdin ends, and reads in a group until all is read that was acknowledged; a group may read a record again.
func through() any {
	producer := client(kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	var lock sync.Mutex
	acknowledged, failed, flushed := []place{}, []string{}, make(chan struct{})
	delivered := func(one *kgo.Record, err error) {
		lock.Lock()
		defer lock.Unlock()
		if err != nil {
			failed = append(failed, err.Error())
		} else {
			acknowledged = append(acknowledged, placed(one))
		}
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	go func() {
		defer close(flushed)
		for number := 0; ; number++ {
			select {
			case <-ended:
				check(producer.Flush(ctx))
				return
			case <-time.After(time.Millisecond):
				producer.Produce(ctx, kgo.StringRecord(fmt.Sprint(number)), delivered)
			}
		}
	}()
	consumer := client(kgo.ConsumeTopics(topic), kgo.ConsumerGroup("of "+topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	found := map[place]bool{}
	for all := false; !all; {
		polling, end := context.WithTimeout(ctx, 200*time.Millisecond)
		for _, one := range consumer.PollFetches(polling).Records() {
			found[placed(one)] = true
		}
		end()
		check(ctx.Err())
		select {
		case <-flushed:
			all = len(found) >= len(acknowledged)
		default:
		}
	}
	consumer.Close()
	producer.Close()
	return seen{"acknowledged": acknowledged, "failed": failed, "read": slices.Collect(maps.Keys(found))}
}

func main() {
	tasks := map[string]func() any{"records": records, "group": group, "transactions": transactions, "admin": admin, "replicas": replicas, "through": through}
	check(json.NewEncoder(os.Stdout).Encode(tasks[task]()))
}
