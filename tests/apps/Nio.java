// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// A server and a client on Java's channels: Nio.java serve PORT FILE, Nio.java ask HOST PORT FILE SECONDS.
//
// A client's first octet says what it wants: F the file, E its octets back.

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.Random;

final class Nio {
    private static final int CLIENTS = 8;
    private static final int MESSAGE = 1000;

    // What the server knows of one connection.
    private static final class Served {
        final ByteBuffer echo = ByteBuffer.allocateDirect(65536);
        FileChannel file;
        long sent;
        boolean asked;
        boolean ended;
    }

    private static void serve(int port, Path path) throws IOException {
        final Selector selector = Selector.open();
        final ServerSocketChannel listener = ServerSocketChannel.open();
        listener.bind(new InetSocketAddress(port)).configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        for (;;) {
            selector.select();
            for (final SelectionKey key : selector.selectedKeys()) {
                if (key.isAcceptable()) {
                    final SocketChannel channel = listener.accept();
                    if (channel == null)
                        continue;
                    channel.configureBlocking(false);
                    channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
                    channel.register(selector, SelectionKey.OP_READ, new Served());
                } else {
                    go(key, path);
                }
            }
            selector.selectedKeys().clear();
        }
    }

    private static void go(SelectionKey key, Path path) {
        final SocketChannel channel = (SocketChannel) key.channel();
        final Served served = (Served) key.attachment();
        try {
            if (served.file == null && !served.ended && served.echo.hasRemaining()) {
                final int count = channel.read(served.echo);
                served.ended = count < 0;
                if (!served.asked && count > 0) {
                    served.asked = true;
                    final byte what = served.echo.flip().get();
                    served.echo.compact();
                    if (what == 'F')
                        served.file = FileChannel.open(path);
                }
            }
            if (served.file != null) {
                served.sent += served.file.transferTo(served.sent, served.file.size() - served.sent, channel);
                if (served.sent == served.file.size()) {
                    served.file.close();
                    channel.close();
                    return;
                }
                key.interestOps(SelectionKey.OP_WRITE);
                return;
            }
            served.echo.flip();
            channel.write(served.echo);
            served.echo.compact();
            if (served.ended && served.echo.position() == 0) {
                channel.close();
                return;
            }
            key.interestOps((served.ended || !served.echo.hasRemaining() ? 0 : SelectionKey.OP_READ)
                            | (served.echo.position() > 0 ? SelectionKey.OP_WRITE : 0));
        } catch (IOException broken) {
            System.err.println(broken);
            key.cancel();
            try {
                channel.close();
            } catch (IOException ignored) {
                // it is gone either way
            }
        }
    }

    private static byte[] digest(FileChannel file) throws Exception {
        final MessageDigest digest = MessageDigest.getInstance("SHA-256");
        final ByteBuffer buffer = ByteBuffer.allocateDirect(65536);
        while (file.read(buffer.clear()) >= 0)
            digest.update(buffer.flip());
        return digest.digest();
    }

    // Octets per second.
    private static double fetch(InetSocketAddress address, Path path) throws Exception {
        final MessageDigest digest = MessageDigest.getInstance("SHA-256");
        final ByteBuffer buffer = ByteBuffer.allocateDirect(65536);
        final long begin = System.nanoTime();
        long size = 0;
        try (SocketChannel channel = SocketChannel.open(address)) {
            channel.write(ByteBuffer.wrap(new byte[] {'F'}));
            for (int count; (count = channel.read(buffer.clear())) >= 0; size += count)
                digest.update(buffer.flip());
        }
        final double speed = size * 1e9 / (System.nanoTime() - begin);
        try (FileChannel file = FileChannel.open(path)) {
            if (!Arrays.equals(digest.digest(), digest(file)))
                throw new IOException("the file is another");
        }
        return speed;
    }

    // What a client of echo has under way.
    private static final class Asking {
        final byte[] message = new byte[MESSAGE];
        final ByteBuffer out = ByteBuffer.allocateDirect(MESSAGE + 1);
        final ByteBuffer in = ByteBuffer.allocateDirect(MESSAGE);

        void next(Random random, boolean first) {
            random.nextBytes(message);
            out.clear();
            if (first)
                out.put((byte) 'E');
            out.put(message).flip();
            in.clear();
        }
    }

    // Messages per second, on several connections.
    private static double echo(InetSocketAddress address, double seconds) throws IOException {
        final Random random = new Random();
        final Selector selector = Selector.open();
        for (int i = 0; i < CLIENTS; i++) {
            final SocketChannel channel = SocketChannel.open();
            channel.configureBlocking(false);
            channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
            final Asking asking = new Asking();
            asking.next(random, true);
            if (channel.connect(address))
                channel.register(selector, SelectionKey.OP_WRITE, asking);
            else
                channel.register(selector, SelectionKey.OP_CONNECT, asking);
        }
        final long begin = System.nanoTime();
        long messages = 0;
        int open = CLIENTS;
        while (open > 0) {
            selector.select();
            for (final SelectionKey key : selector.selectedKeys()) {
                final SocketChannel channel = (SocketChannel) key.channel();
                final Asking asking = (Asking) key.attachment();
                if (key.isConnectable())
                    channel.finishConnect();
                if (asking.out.hasRemaining())
                    channel.write(asking.out);
                if (key.isReadable() && channel.read(asking.in) < 0)
                    throw new IOException("the server has closed");
                if (!asking.in.hasRemaining()) {
                    final byte[] got = new byte[MESSAGE];
                    asking.in.flip().get(got);
                    if (!Arrays.equals(got, asking.message))
                        throw new IOException("other octets came back");
                    messages++;
                    if (System.nanoTime() - begin > seconds * 1e9) {
                        channel.close();
                        open--;
                        continue;
                    }
                    asking.next(random, false);
                    channel.write(asking.out);
                }
                key.interestOps(asking.out.hasRemaining() ? SelectionKey.OP_WRITE : SelectionKey.OP_READ);
            }
            selector.selectedKeys().clear();
        }
        return messages * 1e9 / (System.nanoTime() - begin);
    }

    public static void main(String[] args) throws Exception {
        if (args[0].equals("serve")) {
            serve(Integer.parseInt(args[1]), Path.of(args[2]));
            return;
        }
        final InetSocketAddress address = new InetSocketAddress(args[1], Integer.parseInt(args[2]));
        final double speed = fetch(address, Path.of(args[3]));
        System.out.printf("{\"speed\": %.0f, \"rate\": %.1f}%n", speed, echo(address, Double.parseDouble(args[4])));
    }
}
