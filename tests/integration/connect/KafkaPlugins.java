import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.text.SimpleDateFormat;
import java.util.Base64;
import java.util.Date;
import java.util.HashMap;
import java.util.Map;
import java.util.TimeZone;
import org.apache.kafka.common.Configurable;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.HeaderConverter;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

/** Runs Kafka's own converters, transforms and predicates on cases: a JSON array on stdin, one answer a line on stdout. */
public class KafkaPlugins {
    static final ObjectMapper JSON = new ObjectMapper();
    static final JsonConverter CARRIER = new JsonConverter();

    public static void main(String[] arguments) throws Exception {
        CARRIER.configure(Map.of("converter.type", "value", "schemas.enable", "true"));
        for (JsonNode one : JSON.readTree(System.in)) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("result", run(one));
            } catch (Throwable error) {
                answer.put("error", error.getClass().getSimpleName());
                answer.put("message", String.valueOf(error.getMessage()));
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    static JsonNode run(JsonNode one) throws Exception {
        switch (one.get("run").asText()) {
            case "write": {
                SchemaAndValue value = read(one.get("value"));
                return bytes(((Converter) made(one)).fromConnectData("t", value.schema(), value.value()));
            }
            case "read":
                return written(((Converter) made(one)).toConnectData("t", binary(one.get("data"))));
            case "write_header": {
                SchemaAndValue value = read(one.get("value"));
                return bytes(((HeaderConverter) made(one)).fromConnectHeader("t", "h", value.schema(), value.value()));
            }
            case "read_header":
                return written(((HeaderConverter) made(one)).toConnectHeader("t", "h", binary(one.get("data"))));
            case "transform":
                return record(((Transformation) made(one)).apply(record(one.get("record"))));
            case "test":
                return JSON.getNodeFactory().booleanNode(((Predicate) made(one)).test(record(one.get("record"))));
            case "definition":
                return definition((ConfigDef) made(one).getClass().getMethod("config").invoke(made(one)));
            case "format":
                return JSON.getNodeFactory().textNode(pattern(one).format(new Date(one.get("ms").asLong())));
            case "parse":
                return JSON.getNodeFactory().numberNode(pattern(one).parse(one.get("text").asText()).getTime());
            default:
                throw new IllegalArgumentException(one.toString());
        }
    }

    static SimpleDateFormat pattern(JsonNode one) {
        SimpleDateFormat pattern = new SimpleDateFormat(one.get("pattern").asText());
        pattern.setTimeZone(TimeZone.getTimeZone("UTC"));
        return pattern;
    }

    static Object made(JsonNode one) throws Exception {
        Object made = Class.forName(one.get("class").asText()).getDeclaredConstructor().newInstance();
        Map<String, Object> config = new HashMap<>();
        if (one.has("config")) {
            one.get("config").fields().forEachRemaining(entry -> config.put(entry.getKey(), entry.getValue().asText()));
            if (!one.get("class").asText().contains(".transforms."))
                config.put("converter.type", "value");
            if (made instanceof Configurable)
                ((Configurable) made).configure(config);
            else
                ((Converter) made).configure(config, false);
        }
        return made;
    }

    static byte[] binary(JsonNode node) {
        return node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }

    static JsonNode bytes(byte[] data) {
        return data == null ? JSON.nullNode() : JSON.getNodeFactory().textNode(Base64.getEncoder().encodeToString(data));
    }

    /** A value stands in the envelope of JsonConverter; null is neither schema nor value. */
    static SchemaAndValue read(JsonNode envelope) throws Exception {
        return envelope == null || envelope.isNull() ? SchemaAndValue.NULL : CARRIER.toConnectData("t", JSON.writeValueAsBytes(envelope));
    }

    static JsonNode written(SchemaAndValue value) throws Exception {
        return value == null ? JSON.nullNode() : written(value.schema(), value.value());
    }

    static JsonNode written(Schema schema, Object value) throws Exception {
        byte[] data = CARRIER.fromConnectData("t", schema, value);
        return data == null ? JSON.nullNode() : JSON.readTree(data);
    }

    static ConnectRecord record(JsonNode node) throws Exception {
        SchemaAndValue key = read(node.get("key"));
        SchemaAndValue value = read(node.get("value"));
        ConnectHeaders headers = new ConnectHeaders();
        for (JsonNode header : node.get("headers"))
            headers.add(header.get(0).asText(), read(header.get(1)));
        Integer partition = node.get("partition").isNull() ? null : node.get("partition").asInt();
        Long timestamp = node.get("timestamp").isNull() ? null : node.get("timestamp").asLong();
        String topic = node.get("topic").asText();
        if (node.get("offset").isNull())
            return new SourceRecord(Map.of(), Map.of(), topic, partition, key.schema(), key.value(), value.schema(), value.value(), timestamp, headers);
        return new SinkRecord(topic, partition, key.schema(), key.value(), value.schema(), value.value(), node.get("offset").asLong(), timestamp,
                TimestampType.CREATE_TIME, headers);
    }

    static JsonNode record(ConnectRecord record) throws Exception {
        if (record == null)
            return JSON.nullNode();
        ObjectNode made = JSON.createObjectNode();
        made.put("topic", record.topic());
        made.put("partition", record.kafkaPartition());
        made.put("timestamp", record.timestamp());
        made.set("key", written(record.keySchema(), record.key()));
        made.set("value", written(record.valueSchema(), record.value()));
        ArrayNode headers = made.putArray("headers");
        for (Object one : record.headers()) {
            Header header = (Header) one;
            headers.addArray().add(header.key()).add(written(header.schema(), header.value()));
        }
        return made;
    }

    static JsonNode definition(ConfigDef definition) {
        ArrayNode made = JSON.createArrayNode();
        for (ConfigDef.ConfigKey key : definition.configKeys().values()) {
            ObjectNode one = made.addObject();
            one.put("name", key.name);
            one.put("type", key.type.name());
            one.put("importance", key.importance.name());
            one.put("required", key.defaultValue == ConfigDef.NO_DEFAULT_VALUE);
            one.put("default", key.defaultValue == ConfigDef.NO_DEFAULT_VALUE ? null : ConfigDef.convertToString(key.defaultValue, key.type));
        }
        return made;
    }
}
