import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools one after the other, so that Java starts once.
 *
 * A line of stdin is a call: main class, what the tool reads, its arguments; in base64, with tabs between.
 * A line of stdout is its outcome: exit code, stdout, stderr.
 */
public class KafkaTools {
    private static Integer code; // the first exit's: tools catch what is thrown there, and exit once more

    public static void main(String[] none) throws Exception {
        PrintStream out = System.out;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        Exit.Procedure exit = (status, message) -> {
            code = code == null ? status : code;
            throw new ThreadDeath();
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        List<Runnable> hooks = new ArrayList<>(); // at the end of the process; a producer is closed there
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        for (String line; (line = in.readLine()) != null; ) {
            byte[][] words = Arrays.stream(line.split("\t", -1)).map(Base64.getDecoder()::decode).toArray(byte[][]::new);
            String[] arguments = Arrays.stream(words).skip(2).map(String::new).toArray(String[]::new);
            ByteArrayOutputStream said = new ByteArrayOutputStream(), warned = new ByteArrayOutputStream();
            System.setIn(new ByteArrayInputStream(words[1]));
            System.setOut(new PrintStream(said, true));
            System.setErr(new PrintStream(warned, true));
            code = null;
            hooks.clear();
            try {
                Class.forName(new String(words[0])).getMethod("main", String[].class).invoke(null, (Object) arguments);
            } catch (java.lang.reflect.InvocationTargetException error) {
                if (!(error.getCause() instanceof ThreadDeath)) {
                    error.getCause().printStackTrace();
                    code = code == null ? 1 : code;
                }
            }
            hooks.forEach(Runnable::run);
            Base64.Encoder encoder = Base64.getEncoder();
            out.println((code == null ? 0 : code) + "\t" + encoder.encodeToString(said.toByteArray()) + "\t" + encoder.encodeToString(warned.toByteArray()));
            out.flush();
        }
        Runtime.getRuntime().halt(0); // some tools leave threads behind
    }
}
