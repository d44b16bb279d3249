import java.io.FileReader;
import java.time.Duration;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Properties;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.TimeWindows;

/** page_views.py on Kafka Streams. Arguments: streams.properties, the output topic. */
public class PageViews {
    static final DateTimeFormatter MINUTE = DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm'Z'").withZone(ZoneOffset.UTC);

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.load(new FileReader(args[0]));
        properties.putIfAbsent("application.id", "page-views");

        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("page-views")
            .groupByKey()
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(10), Duration.ofMinutes(10)).advanceBy(Duration.ofMinutes(5)))
            .count()
            .toStream()
            .map((page, count) -> KeyValue.pair(page.key() + "@" + MINUTE.format(page.window().startTime()), String.valueOf(count)))
            .to(args[1]);

        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
