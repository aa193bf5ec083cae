import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.utils.Exit;

/**
 * Program that loads the classes of Kafka's server, clients and tools, and of the Java compiler that runs this file.
 * Java writes them to an archive at its end (-XX:ArchiveClassesAtExit), from which later processes start in half the
 * time. Arguments: the properties of a node, and the address of its client listener.
 */
public class ClassArchive {
    private static final String TOOLS = "org.apache.kafka.tools.";

    public static void main(String[] arguments) throws Exception {
        Exit.setExitProcedure((code, message) -> { throw new IllegalStateException("exit " + code + ": " + message); });
        run("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", arguments[0]);
        Thread server = new Thread(() -> run("kafka.Kafka", arguments[0]), "server");
        server.setDaemon(true);
        server.start();
        String[] address = {"--bootstrap-server", arguments[1]};
        run(TOOLS + "TopicCommand", with(address, "--create", "--topic", "words"));
        System.setIn(new ByteArrayInputStream("word\n".getBytes(StandardCharsets.UTF_8)));
        run(TOOLS + "ConsoleProducer", with(address, "--topic", "words"));
        run(TOOLS + "consumer.ConsoleConsumer", with(address, "--topic", "words", "--from-beginning", "--max-messages", "1"));
        run(TOOLS + "consumer.group.ConsumerGroupCommand", with(address, "--list"));
        run(TOOLS + "MetadataQuorumCommand", with(address, "describe", "--status"));
        run("kafka.admin.ConfigCommand", with(address, "--describe", "--entity-type", "topics", "--entity-name", "words"));
        Runtime.getRuntime().exit(0);
    }

    private static String[] with(String[] address, String... arguments) {
        String[] all = new String[address.length + arguments.length];
        System.arraycopy(address, 0, all, 0, address.length);
        System.arraycopy(arguments, 0, all, address.length, arguments.length);
        return all;
    }

    /** Runs a tool. Its failure makes the archive smaller at worst. */
    private static void run(String main, String... arguments) {
        try {
            Class.forName(main).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (ReflectiveOperationException error) {
            System.err.println(main + ": " + error.getCause());
        }
    }
}
