import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;

/** Debezium's engine on PostgreSQL: counts events as JSON, and says when all are there.  Arguments: port, count, directory. */
public class ChangeCapture {
    public static void main(String[] arguments) throws Exception {
        long wanted = Long.parseLong(arguments[1]);
        Properties properties = new Properties();
        properties.setProperty("name", "benches");
        properties.setProperty("connector.class", "io.debezium.connector.postgresql.PostgresConnector");
        properties.setProperty("offset.storage", "org.apache.kafka.connect.storage.FileOffsetBackingStore");
        properties.setProperty("offset.storage.file.filename", arguments[2] + "/offsets");
        properties.setProperty("offset.flush.interval.ms", "10000");
        properties.setProperty("database.hostname", "127.0.0.1");
        properties.setProperty("database.port", arguments[0]);
        properties.setProperty("database.user", "test");
        properties.setProperty("database.password", "test");
        properties.setProperty("database.dbname", "postgres");
        properties.setProperty("topic.prefix", "shop");
        properties.setProperty("plugin.name", "pgoutput");
        properties.setProperty("slot.name", "benches");
        properties.setProperty("publication.autocreate.mode", "filtered");
        properties.setProperty("table.include.list", "public.rows");
        properties.setProperty("snapshot.mode", "no_data");
        AtomicLong count = new AtomicLong();
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
            .using(properties)
            .notifying((events, committer) -> {
                for (ChangeEvent<String, String> event : events) {
                    if (event.value() != null && count.incrementAndGet() == wanted) {
                        System.out.println("done");
                    }
                    committer.markProcessed(event);
                }
                committer.markBatchFinished();
            })
            .using((success, message, error) -> System.out.println("ended: " + message))
            .build();
        engine.run();
    }
}
