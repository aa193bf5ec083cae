import java.time.Duration;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.security.token.delegation.DelegationToken;
import org.apache.kafka.common.errors.SaslAuthenticationException;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Apache Kafka's client: see test_clients.py for what it does and prints. */
public final class SecureClient {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> scram = scram(env("USER"), env("PASSWORD"), false);
        produce(scram, "allowed", "java");
        System.out.println(consume(scram, "allowed", "java") ? "scram: wrote and read" : "scram: read nothing");
        System.out.println("forbidden topic: " + refusal(scram, "forbidden"));
        System.out.println("wrong password: " + refusal(scram(env("USER"), "wrong", false), "allowed"));
        Map<String, Object> certificate = new HashMap<>(trust(env("MTLS")));
        certificate.put("security.protocol", "SSL");
        certificate.put("ssl.keystore.type", "PEM");
        certificate.put("ssl.keystore.location", env("KEYSTORE"));
        produce(certificate, "allowed", "java");
        System.out.println("certificate: wrote");
        System.out.println("certificate, forbidden topic: " + refusal(certificate, "forbidden"));
        tokens(scram);
        produce(oauth(env("TOKEN")), "allowed", "java by OAuth");
        System.out.println("OAuth: wrote");
        System.out.println("OAuth, forbidden topic: " + refusal(oauth(env("TOKEN")), "forbidden"));
        System.out.println("OAuth, expired token: " + refusal(oauth(env("EXPIRED_TOKEN")), "allowed"));
        Runtime.getRuntime().halt(0);
    }

    static String env(String name) {
        return System.getenv("SECURE_" + name);
    }

    static Map<String, Object> trust(String bootstrap) {
        return Map.of(
                "bootstrap.servers", bootstrap, "ssl.truststore.type", "PEM", "ssl.truststore.location", env("CA"),
                "request.timeout.ms", 10_000, "default.api.timeout.ms", 15_000);
    }

    static Map<String, Object> scram(String user, String password, boolean isToken) {
        Map<String, Object> config = new HashMap<>(trust(env("SCRAM")));
        config.put("security.protocol", "SASL_SSL");
        config.put("sasl.mechanism", "SCRAM-SHA-512");
        config.put("sasl.jaas.config", "org.apache.kafka.common.security.scram.ScramLoginModule required username=\""
                + user + "\" password=\"" + password + "\"" + (isToken ? " tokenauth=\"true\"" : "") + ";");
        return config;
    }

    static Map<String, Object> oauth(String tokenFile) {
        String url = "file://" + tokenFile;
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", url);
        Map<String, Object> config = new HashMap<>(trust(env("OAUTH")));
        config.put("security.protocol", "SASL_SSL");
        config.put("sasl.mechanism", "OAUTHBEARER");
        config.put("sasl.jaas.config",
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;");
        config.put("sasl.login.callback.handler.class",
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler");
        config.put("sasl.oauthbearer.token.endpoint.url", url);
        return config;
    }

    static void produce(Map<String, Object> config, String topic, String value) throws Exception {
        Map<String, Object> settings = new HashMap<>(config);
        settings.put("delivery.timeout.ms", 15_000);
        settings.put("max.block.ms", 15_000);
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic, value)).get();
        }
    }

    static boolean consume(Map<String, Object> config, String topic, String value) {
        Map<String, Object> settings = new HashMap<>(config);
        settings.put("group.id", "g-" + value);
        settings.put("auto.offset.reset", "earliest");
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            long end = System.nanoTime() + Duration.ofSeconds(20).toNanos();
            while (System.nanoTime() < end) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    if (record.value().equals(value)) {
                        consumer.commitSync();
                        return true;
                    }
                }
            }
            return false;
        }
    }

    static String refusal(Map<String, Object> config, String topic) throws Exception {
        try {
            produce(config, topic, "refused");
            return "accepted";
        } catch (ExecutionException | RuntimeException error) {
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                if (cause instanceof TopicAuthorizationException) {
                    return "not authorized";
                }
                if (cause instanceof SaslAuthenticationException) {
                    return "not authenticated";
                }
            }
            throw error;
        }
    }

    /** Creates, uses, renews and expires a delegation token of the user. */
    static void tokens(Map<String, Object> config) throws Exception {
        try (Admin admin = Admin.create(config)) {
            DelegationToken token = admin.createDelegationToken().delegationToken().get();
            String password = Base64.getEncoder().encodeToString(token.hmac());
            Map<String, Object> byToken = scram(token.tokenInfo().tokenId(), password, true);
            produce(byToken, "allowed", "java by token");
            System.out.println("token: wrote");
            System.out.println("token, forbidden topic: " + refusal(byToken, "forbidden"));
            admin.renewDelegationToken(token.hmac()).expiryTimestamp().get();
            boolean isListed = admin.describeDelegationToken().delegationTokens().get().contains(token);
            System.out.println("token: " + (isListed ? "listed" : "not listed"));
            admin.expireDelegationToken(token.hmac()).expiryTimestamp().get();
            System.out.println("expired token: " + refusal(byToken, "allowed"));
        }
    }
}
