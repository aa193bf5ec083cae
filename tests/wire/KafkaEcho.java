import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.Readable;

/**
 * Program that reads lines "message version hex", decodes and encodes each with Kafka's class of that message, and
 * prints "message version hex" with the result, or "message version ! reason".
 */
public final class KafkaEcho {
    private static final String[] PACKAGES = {
        "org.apache.kafka.common.message",
        "org.apache.kafka.common.metadata",
        "org.apache.kafka.coordinator.group.generated",
        "org.apache.kafka.coordinator.share.generated",
        "org.apache.kafka.coordinator.transaction.generated",
        "org.apache.kafka.server.log.remote.metadata.storage.generated",
        "org.apache.kafka.raft.generated",
    };

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            System.out.println(words[0] + " " + words[1] + " " + echo(words[0], Short.parseShort(words[1]), words[2]));
        }
    }

    private static String echo(String name, short version, String hex) {
        try {
            ByteBuffer in = ByteBuffer.wrap(HexFormat.of().parseHex(hex));
            Message message = (Message) find(name)
                .getConstructor(Readable.class, short.class)
                .newInstance(new ByteBufferAccessor(in), version);
            if (in.hasRemaining()) {
                return "! left " + in.remaining() + " bytes unread";
            }
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer out = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(out), cache, version);
            return HexFormat.of().formatHex(out.array(), 0, out.position());
        } catch (java.lang.reflect.InvocationTargetException e) {
            return "! " + e.getCause();
        } catch (Exception e) {
            return "! " + e;
        }
    }

    private static Class<?> find(String name) throws ClassNotFoundException {
        for (String prefix : PACKAGES) {
            for (String suffix : new String[] {"", "Data"}) {
                try {
                    return Class.forName(prefix + "." + name + suffix);
                } catch (ClassNotFoundException e) {
                    continue;
                }
            }
        }
        throw new ClassNotFoundException(name);
    }
}
