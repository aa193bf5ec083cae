import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.security.Permission;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.kafka.common.utils.Exit;

/**
 * Program that runs many of Kafka's command-line tools in one Java process, since the start of a process takes seconds.
 * Each line of standard input is a call: {"main": class, "arguments": [text, …], "stdin": text, "guarded": boolean}. Each
 * line of output is its outcome: {"code": exit code, "out": standard output, "err": standard error}. A call ends when
 * the tool exits; its shutdown hooks run then. The thread of the tool stays blocked in its call of exit, as if the
 * process had ended. A guarded call may also exit through System.exit, but cannot create clients.
 */
public class ToolRunner {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final List<Runnable> hooks = new CopyOnWriteArrayList<>();
    /** The output of all calls goes to the same streams, since libraries keep the streams that they find first. */
    private static final ByteArrayOutputStream outText = new ByteArrayOutputStream();
    private static final ByteArrayOutputStream errText = new ByteArrayOutputStream();
    private static CompletableFuture<Integer> exitCode = new CompletableFuture<>();

    public static void main(String[] ignored) throws Exception {
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream outcomes = System.out;
        System.setOut(new PrintStream(outText, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errText, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((code, message) -> exit(code));
        Exit.setHaltProcedure((code, message) -> exit(code));
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        for (String line = calls.readLine(); line != null; line = calls.readLine()) {
            JsonNode call = JSON.readTree(line);
            List<String> arguments = new ArrayList<>();
            call.get("arguments").forEach(each -> arguments.add(each.asText()));
            System.setSecurityManager(call.get("guarded").asBoolean() ? new ExitGuard() : null);
            Map<String, Object> outcome = run(call.get("main").asText(), arguments, call.get("stdin").asText());
            outcomes.println(JSON.writeValueAsString(outcome));
            outcomes.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    /** Keeps a tool's System.exit from ending the process. The argument parser of some tools calls it. */
    private static class ExitGuard extends SecurityManager {
        @Override
        public void checkPermission(Permission permission) {
            if (permission.getName().startsWith("exitVM.")) {
                exit(Integer.parseInt(permission.getName().substring("exitVM.".length())));
            }
        }
    }

    private static void exit(int code) {
        if (Thread.currentThread().getName().equals("main")) {
            return;
        }
        exitCode.complete(code);
        while (true) {
            try {
                Thread.sleep(Long.MAX_VALUE);
            } catch (InterruptedException ignored) {
                // The thread has ended as far as the tool is concerned.
            }
        }
    }

    private static Map<String, Object> run(String main, List<String> arguments, String input) throws Exception {
        outText.reset();
        errText.reset();
        System.setIn(new ByteArrayInputStream(input.getBytes(StandardCharsets.UTF_8)));
        exitCode = new CompletableFuture<>();
        Thread tool = new Thread(() -> invoke(main, arguments), "tool");
        tool.setDaemon(true);
        tool.start();
        int code = exitCode.get();
        hooks.forEach(Runnable::run);
        hooks.clear();
        runSystemHooks();
        return Map.of(
            "code", code,
            "out", outText.toString(StandardCharsets.UTF_8),
            "err", errText.toString(StandardCharsets.UTF_8));
    }

    /** Runs the shutdown hooks that a tool registered with the Java runtime itself. */
    private static void runSystemHooks() throws Exception {
        Field field = Class.forName("java.lang.ApplicationShutdownHooks").getDeclaredField("hooks");
        field.setAccessible(true);
        Map<?, ?> registered = (Map<?, ?>) field.get(null);
        for (Object hook : registered.keySet().toArray()) {
            registered.remove(hook);
            ((Thread) hook).run();
        }
    }

    private static void invoke(String main, List<String> arguments) {
        try {
            Class.forName(main).getMethod("main", String[].class).invoke(null, (Object) arguments.toArray(new String[0]));
            exitCode.complete(0);
        } catch (InvocationTargetException error) {
            error.getCause().printStackTrace();
            exitCode.complete(1);
        } catch (ReflectiveOperationException error) {
            error.printStackTrace();
            exitCode.complete(1);
        }
    }
}
