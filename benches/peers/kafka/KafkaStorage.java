// Kafka's storage engine alone: no broker, no network.
//
//   java -cp ... KafkaStorage OPERATION RECORDS COUNT VALUE_SIZE DIRECTORY
//
//   append_many    MemoryRecords of 1,000 records are built (CRC included) and appended by UnifiedLog.appendAsLeader
//   append_ready   prebuilt ones are appended: appendAsLeader checks the CRC and each record, assigns offsets, writes, indexes
//   read           the segments are read 1 MiB at a time, each batch's CRC is checked, each record met
//   read_zstd      the same, of batches compressed with zstd
//   read_batches   as read, but records are not looked at
//
// The same work is done with six million records before it is timed, for the JIT.  Prints {"count": ..., "seconds": ...}.
import java.io.File;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class KafkaStorage {
    static final int BATCH_COUNT = 1_000, KEY_SIZE = 16, READ_SIZE = 1 << 20, READY_COUNT = 100, WARM_COUNT = 6_000_000;
    static final KafkaScheduler SCHEDULER = new KafkaScheduler(1);
    static byte[][] keys, values;
    static int count, valueSize;
    static File directory;
    static Compression compression;

    public static void main(String[] args) throws Exception {
        count = Integer.parseInt(args[2]);
        valueSize = Integer.parseInt(args[3]);
        directory = new File(args[4]);
        compression = args[0].endsWith("_zstd") ? Compression.zstd().build() : Compression.NONE;
        load(new File(args[1]));
        SCHEDULER.startup();
        boolean reads = args[0].startsWith("read");
        long timedCount = 0, timedNanos = 0;
        if (reads) {
            append(true);
            for (long warm = 0; warm < WARM_COUNT; warm += count) read(!args[0].equals("read_batches"));
            settle();
            while (timedNanos < 1_000_000_000L) {
                timedNanos += read(!args[0].equals("read_batches"));
                timedCount += count;
            }
        } else {
            boolean ready = args[0].equals("append_ready");
            for (long warm = 0; warm < WARM_COUNT; warm += count) append(ready);
            timedNanos = append(ready);
            timedCount = count;
        }
        System.out.printf("{\"count\": %d, \"seconds\": %.6f}%n", timedCount, timedNanos / 1e9);
        System.exit(0);
    }

    static void load(File records) throws Exception {
        int row = KEY_SIZE + valueSize;
        byte[] all = Files.readAllBytes(records.toPath());
        keys = new byte[all.length / row][];
        values = new byte[keys.length][];
        for (int i = 0; i < keys.length; i++) {
            keys[i] = Arrays.copyOfRange(all, i * row, i * row + KEY_SIZE);
            values[i] = Arrays.copyOfRange(all, i * row + KEY_SIZE, (i + 1) * row);
        }
    }

    static MemoryRecords build(ByteBuffer buffer, int first) {
        buffer.clear();
        MemoryRecordsBuilder builder = MemoryRecords.builder(buffer, compression, TimestampType.CREATE_TIME, 0L);
        for (int i = 0; i < BATCH_COUNT; i++) {
            int at = (first + i) % keys.length;
            builder.append(1_700_000_000_000L + i, keys[at], values[at]);
        }
        return builder.build();
    }

    static ByteBuffer room() {
        return ByteBuffer.allocate((KEY_SIZE + valueSize + 40) * BATCH_COUNT + 200);
    }

    // Appends all records to a new log; returns the nanoseconds until the last was written.
    static long append(boolean ready) throws Exception {
        MemoryRecords[] prebuilt = new MemoryRecords[ready ? READY_COUNT : 0];
        for (int i = 0; i < prebuilt.length; i++) prebuilt[i] = build(room(), i * BATCH_COUNT);
        File partition = new File(directory, "t-0");
        delete(partition);
        partition.mkdirs();
        LogConfig config = new LogConfig(Map.of("max.message.bytes", 4 << 20));
        UnifiedLog log = UnifiedLog.create(partition, config, 0L, 0L, SCHEDULER, new BrokerTopicStats(), Time.SYSTEM, 300_000,
            new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(1), true, Optional.empty());
        ByteBuffer buffer = room();
        settle();
        long began = System.nanoTime();
        for (int i = 0; i < count / BATCH_COUNT; i++) {
            MemoryRecords batch = ready ? prebuilt[i % READY_COUNT] : build(buffer, i * BATCH_COUNT);
            batch.buffer().putLong(0, 0L);  // the append before wrote its offset there; it is not under the CRC
            log.appendAsLeader(batch, 0);
        }
        long nanos = System.nanoTime() - began;
        if (log.logEndOffset() != count) throw new Error("the log ends at " + log.logEndOffset() + " instead of " + count);
        log.close();
        return nanos;
    }

    // Reads all segments; returns the nanoseconds.
    static long read(boolean iterate) throws Exception {
        File[] segments = new File(directory, "t-0").listFiles((where, name) -> name.endsWith(".log"));
        Arrays.sort(segments);
        ByteBuffer buffer = ByteBuffer.allocate(Math.max(READ_SIZE, 2 * room().capacity()));
        long met = 0, valueBytes = 0, began = System.nanoTime();
        for (File segment : segments) {
            try (FileRecords file = FileRecords.open(segment, false)) {
                for (int position = 0, used; position < file.sizeInBytes(); position += used) {
                    buffer.clear().limit(Math.min(buffer.capacity(), file.sizeInBytes() - position));
                    file.readInto(buffer, position);
                    used = 0;
                    for (MutableRecordBatch batch : MemoryRecords.readableRecords(buffer).batches()) {
                        batch.ensureValid();
                        if (iterate) {
                            for (Record record : batch) {
                                valueBytes += record.valueSize();
                                met++;
                            }
                        } else met += batch.countOrNull();
                        used += batch.sizeInBytes();
                    }
                    if (used == 0) throw new Error("no whole batch at " + position);
                }
            }
        }
        long nanos = System.nanoTime() - began;
        if (met != count || iterate && valueBytes != (long) count * valueSize) throw new Error(met + " records, " + valueBytes + " bytes");
        return nanos;
    }

    // What Work.start does on Python's side.
    static void settle() throws Exception {
        new ProcessBuilder("sync").start().waitFor();
        File scratch = new File(directory.getParentFile(), "scratch");
        byte[] piece = new byte[128 << 10];
        try (RandomAccessFile file = new RandomAccessFile(scratch, "rw")) {
            for (long left = (long) count * (valueSize + 40); left > 0; left -= piece.length) file.write(piece);
        }
        scratch.delete();
    }

    static void delete(File where) {
        File[] within = where.listFiles();
        if (within != null) for (File file : within) delete(file);
        where.delete();
    }
}
