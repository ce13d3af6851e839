// The JVM's own HTTP server: a dispatcher with a queue, and a pool of four threads. A request sorts
// and joins words, about 0.5 to 4 ms.

import com.sun.net.httpserver.HttpServer;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Collections;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadLocalRandom;

public class Server {
    static byte[] answer() {
        ThreadLocalRandom random = ThreadLocalRandom.current();
        int count = 1000 + (int) Math.min(12000, -2500 * Math.log(1 - random.nextDouble()));
        ArrayList<String> words = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            words.add("word " + random.nextInt(100000));
        }
        Collections.sort(words);
        return (String.join(" ", words).hashCode() + "\n").getBytes();
    }

    public static void main(String[] arguments) throws Exception {
        InetAddress local = InetAddress.getByName("127.0.0.1");
        int port = Integer.parseInt(arguments[0]);
        HttpServer server = HttpServer.create(new InetSocketAddress(local, port), 128);
        server.createContext("/", exchange -> {
            byte[] body = answer();
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.start();
    }
}
