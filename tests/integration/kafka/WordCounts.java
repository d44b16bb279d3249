import java.io.FileReader;
import java.util.Properties;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;

/** Counts the values of the topic "words" into the topic "counts": a repartition topic makes them keys, a changelog keeps their counts. */
public class WordCounts {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        try (FileReader file = new FileReader(args[0])) {
            properties.load(file);
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("words")
            .groupBy((key, word) -> word)
            .count()
            .toStream()
            .mapValues(String::valueOf)
            .to("counts");
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        streams.setUncaughtExceptionHandler(error -> StreamThreadExceptionResponse.SHUTDOWN_CLIENT);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
