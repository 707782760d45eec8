// Starts Chromium in the sandbox and connects its one client through the standard streams.
//
// Arguments: the folder of Playwright's package, and the options of `launchServer` in JSON. The first
// line of output is the path of the WebSocket; after it, both streams are that connection.
const net = require("node:net");
const { chromium } = require(process.argv[1]);

chromium.launchServer(JSON.parse(process.argv[2])).then(
  (server) => {
    const { hostname, port, pathname } = new URL(server.wsEndpoint());
    const socket = net.connect(Number(port), hostname, () => {
      process.stdout.write(`${pathname}\n`);
      process.stdin.pipe(socket).pipe(process.stdout);
    });
    const end = () => server.close().finally(() => process.exit());
    socket.on("close", end);
    socket.on("error", () => {}); // "close" follows
    process.stdin.on("end", end);
    server.on("close", () => process.exit());
  },
  (error) => {
    process.stderr.write(`${error.message}\n`);
    process.exitCode = 1;
  },
);
