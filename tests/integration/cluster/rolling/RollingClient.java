// Kafka's own client during restarts: `RollingClient HOST:PORT,… TOPIC`; what it prints is as in clients.py.
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class RollingClient {
    private static volatile boolean stopped = false;

    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0], topic = arguments[1];
        daemon(() -> read(servers, topic));
        daemon(() -> {
            System.in.read();
            stopped = true;
        });
        Map<String, Object> settings = Map.of("bootstrap.servers", servers, "enable.idempotence", true);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; !stopped; number++) {
                String value = Integer.toString(number);
                producer.send(new ProducerRecord<>(topic, value), (stored, error) -> say(error == null ? "a " + value : "x " + error));
                Thread.sleep(10);
            }
            producer.flush();
        }
        say("sent");
        Thread.sleep(3_600_000);
    }

    private static void read(String servers, String topic) {
        Map<String, Object> settings = Map.of("bootstrap.servers", servers, "group.id", "java", "auto.offset.reset", "earliest");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (true) {
                consumer.poll(Duration.ofSeconds(1)).forEach(record -> say("r " + record.value()));
            }
        }
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private interface Task {
        void run() throws Exception;
    }

    private static void daemon(Task task) {
        Thread thread = new Thread(() -> {
            try {
                task.run();
            } catch (Exception error) {
                say("x " + error);
            }
        });
        thread.setDaemon(true);
        thread.start();
    }
}
