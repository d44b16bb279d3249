import java.io.FileReader;
import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;

/** word_count.py on Kafka Streams. Arguments: streams.properties, the output topic. */
public class WordCount {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.load(new FileReader(args[0]));
        properties.putIfAbsent("application.id", "word-count");

        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("streams-plaintext-input")
            .flatMapValues(line -> Arrays.asList(line.toLowerCase(Locale.ROOT).split("\\W+")))
            .filter((key, word) -> !word.isEmpty())
            .groupBy((key, word) -> word)
            .count()
            .toStream()
            .mapValues(String::valueOf)
            .to(args[1]);

        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
