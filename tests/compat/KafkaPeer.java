// Kafka's own tools and storage engine, at the service of test_kafka_dump_log.py.
//
//   java -cp 'JARS/*' KafkaPeer.java
//
// One request a line on stdin, one answer a line on stdout, both JSON; bytes are base64.
//
//   {"do": "dump", "arguments": [...]}         DumpLogSegments -> {"output": "...", "complaints": "..."}
//   {"do": "read", "directory": "...", "clean": bool, "timestamps": [...]}
//       UnifiedLog opens the directory (it may change it) and reads all of it
//       -> {"end_offset", "epochs", "checkpoint", "segment_count", "records", "offsets": [offset or null per timestamp],
//           "stable_offset", "producers": [[id, epoch, last sequence, coordinator epoch, first offset or -1], ...],
//           "aborted": [[producer id, first offset], ...] of the first segment}
//   {"do": "write", "directory": "...", "batches": [{"codec", "epoch", "records", "roll", "producer_id", "sequence", "end"}, ...]}
//       UnifiedLog opens the directory, or makes it, and appends as leader; "end" is ABORT or COMMIT: a marker behind the records
//       -> {"end_offset", "epochs", "segment_count"}
//   {"do": "partition", "keys": [...], "count": n} -> {"partitions": [...]}
//
// A record is [timestamp, key, value, [[header key, header value], ...]], with its offset in front where it is read.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.common.TransactionVersion;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;
import org.apache.kafka.tools.DumpLogSegments;

public class KafkaPeer {
    static final int READ_SIZE = 64 << 10;
    static final ObjectMapper JSON = new ObjectMapper();
    static final KafkaScheduler SCHEDULER = new KafkaScheduler(1);

    public static void main(String[] none) throws Exception {
        SCHEDULER.startup();
        PrintStream answers = System.out;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = requests.readLine()) != null; ) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                JsonNode request = JSON.readTree(line);
                switch (request.get("do").textValue()) {
                    case "dump" -> dump(request, answer);
                    case "read" -> read(request, answer);
                    case "write" -> write(request, answer);
                    case "partition" -> partition(request, answer);
                    default -> throw new IllegalArgumentException(line);
                }
            } catch (Throwable error) {
                answer.put("error", Utils.stackTrace(error));
            }
            answers.println(JSON.writeValueAsString(answer));
        }
        System.exit(0);
    }

    static void dump(JsonNode request, ObjectNode answer) throws Exception {
        PrintStream out = System.out, err = System.err;
        ByteArrayOutputStream output = new ByteArrayOutputStream(), complaints = new ByteArrayOutputStream();
        try {
            System.setOut(new PrintStream(output, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(complaints, true, StandardCharsets.UTF_8));
            DumpLogSegments.main(JSON.convertValue(request.get("arguments"), String[].class));
        } catch (Exception error) {  // how it says that an index leads nowhere
            System.err.println(error);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        answer.put("output", output.toString(StandardCharsets.UTF_8)).put("complaints", complaints.toString(StandardCharsets.UTF_8));
    }

    static UnifiedLog open(JsonNode request, boolean clean) throws Exception {
        LogConfig config = new LogConfig(Map.of("index.interval.bytes", 512, "segment.ms", Long.MAX_VALUE));
        return UnifiedLog.create(new File(request.get("directory").textValue()), config, 0L, 0L, SCHEDULER, new BrokerTopicStats(),
            Time.SYSTEM, 300_000, new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(1), clean,
            Optional.empty());
    }

    static void read(JsonNode request, ObjectNode answer) throws Exception {
        File directory = new File(request.get("directory").textValue());
        ArrayNode checkpoint = answer.putArray("checkpoint");
        LeaderEpochCheckpointFile file = new LeaderEpochCheckpointFile(LeaderEpochCheckpointFile.newFile(directory), null);
        for (EpochEntry entry : file.read()) checkpoint.addArray().add(entry.epoch()).add(entry.startOffset());
        try (UnifiedLog log = open(request, request.get("clean").booleanValue())) {
            describe(log, answer);
            ArrayNode records = answer.putArray("records");
            for (long offset = log.logStartOffset(), end = log.logEndOffset(); offset < end; ) {
                long before = offset;
                for (RecordBatch batch : log.read(offset, READ_SIZE, FetchIsolation.LOG_END, true).records.batches()) {
                    batch.ensureValid();
                    for (Record record : batch) if (record.offset() >= before && !batch.isControlBatch()) add(records.addArray(), record);
                    offset = batch.nextOffset();
                }
                if (offset == before) throw new IllegalStateException("no batch at offset " + offset + " of " + end);
            }
            describeTransactions(log, answer);
            ArrayNode offsets = answer.putArray("offsets");
            for (JsonNode timestamp : request.withArray("timestamps")) {
                var found = log.fetchOffsetByTimestamp(timestamp.longValue(), Optional.empty()).timestampAndOffsetOpt();
                offsets.add(found.map(it -> it.offset).orElse(null));
            }
        }
    }

    static void describe(UnifiedLog log, ObjectNode answer) {
        answer.put("end_offset", log.logEndOffset()).put("segment_count", log.numberOfSegments());
        ArrayNode epochs = answer.putArray("epochs");
        for (EpochEntry entry : log.leaderEpochCache().epochEntries()) epochs.addArray().add(entry.epoch()).add(entry.startOffset());
    }

    static void describeTransactions(UnifiedLog log, ObjectNode answer) throws Exception {
        log.updateHighWatermark(log.logEndOffset());  // as a leader without followers
        answer.put("stable_offset", log.lastStableOffset());
        ArrayNode producers = answer.putArray("producers");
        for (var state : log.activeProducers())
            producers.addArray().add(state.producerId()).add(state.producerEpoch()).add(state.lastSequence())
                .add(state.coordinatorEpoch()).add(state.currentTxnStartOffset());
        ArrayNode aborted = answer.putArray("aborted");
        if (log.lastStableOffset() == log.logStartOffset()) return;
        var fetched = log.read(log.logStartOffset(), Integer.MAX_VALUE, FetchIsolation.TXN_COMMITTED, true);
        for (var transaction : fetched.abortedTransactions.orElseThrow())
            aborted.addArray().add(transaction.producerId()).add(transaction.firstOffset());
    }

    static void add(ArrayNode row, Record record) {
        row.add(record.offset()).add(record.timestamp()).add(Utils.toNullableArray(record.key())).add(Utils.toNullableArray(record.value()));
        ArrayNode headers = row.addArray();
        for (Header header : record.headers()) headers.addArray().add(header.key()).add(header.value());
    }

    static void write(JsonNode request, ObjectNode answer) throws Exception {
        new File(request.get("directory").textValue()).mkdirs();
        try (UnifiedLog log = open(request, true)) {
            for (JsonNode batch : request.get("batches")) {
                if (batch.path("roll").booleanValue()) log.roll();
                int epoch = batch.get("epoch").intValue();
                long producer = batch.path("producer_id").asLong(-1);
                SimpleRecord[] records = new SimpleRecord[batch.get("records").size()];
                for (int i = 0; i < records.length; i++) records[i] = record(batch.get("records").get(i));
                Compression codec = Compression.of(batch.get("codec").textValue()).build();
                int sequence = batch.path("sequence").asInt(0);
                log.appendAsLeader(producer < 0 ? MemoryRecords.withRecords(codec, records)
                    : MemoryRecords.withTransactionalRecords(codec, producer, (short) 0, sequence, records), epoch);
                if (batch.has("end")) {
                    var marker = new EndTransactionMarker(ControlRecordType.valueOf(batch.get("end").textValue()), 0);
                    log.appendAsLeader(MemoryRecords.withEndTransactionMarker(producer, (short) 0, marker), epoch, AppendOrigin.COORDINATOR,
                        RequestLocal.noCaching(), VerificationGuard.SENTINEL, TransactionVersion.TV_0.featureLevel());
                }
            }
            describe(log, answer);
        }
    }

    static SimpleRecord record(JsonNode row) throws Exception {
        Header[] headers = new Header[row.get(3).size()];
        for (int i = 0; i < headers.length; i++) headers[i] = new RecordHeader(row.get(3).get(i).get(0).textValue(), bytes(row.get(3).get(i).get(1)));
        return new SimpleRecord(row.get(0).longValue(), bytes(row.get(1)), bytes(row.get(2)), headers);
    }

    static byte[] bytes(JsonNode node) throws Exception {
        return node.isNull() ? null : node.binaryValue();
    }

    static void partition(JsonNode request, ObjectNode answer) throws Exception {
        ArrayNode partitions = answer.putArray("partitions");
        for (JsonNode key : request.get("keys")) partitions.add(BuiltInPartitioner.partitionForKey(key.binaryValue(), request.get("count").intValue()));
    }
}
