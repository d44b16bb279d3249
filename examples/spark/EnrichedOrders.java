import java.io.FileReader;
import java.util.Properties;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KTable;

/** enriched_orders.py on Kafka Streams. Arguments: streams.properties, the output topic. */
public class EnrichedOrders {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.load(new FileReader(args[0]));
        properties.putIfAbsent("application.id", "enriched-orders");

        StreamsBuilder builder = new StreamsBuilder();
        KTable<String, String> emails = builder.table("emails");
        builder.<String, String>stream("orders")
            .leftJoin(emails, (order, email) -> order + " -> " + (email == null ? "nobody" : email))
            .to(args[1]);

        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
