// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// A server and a client of HTTP in Node.js: node.mjs serve PORT FILE, node.mjs ask HOST PORT FILE SECONDS.

import { createHash, randomBytes } from "node:crypto";
import { createReadStream } from "node:fs";
import http from "node:http";
import { pipeline } from "node:stream/promises";

function serve(port, file) {
  const server = http.createServer((request, response) => {
    if (request.url === "/file")
      createReadStream(file).pipe(response);
    else
      request.pipe(response); // the body, as it comes
  });
  // A client that computes for longer than the usual 5 s would send on a connection that the server is just closing.
  server.keepAliveTimeout = 0;
  server.listen(Number(port), "0.0.0.0");
}

// Resolves to the answer, whose body has not been read.
function ask(options, body) {
  return new Promise((resolve, reject) => {
    const request = http.request(options, (response) => {
      if (response.statusCode === 200)
        resolve(response);
      else
        reject(new Error(`status ${response.statusCode}`));
    });
    request.on("error", reject);
    request.end(body);
  });
}

async function read(response) {
  const parts = [];
  for await (const part of response)
    parts.push(part);
  return Buffer.concat(parts);
}

async function digest(stream) {
  const hash = createHash("sha256");
  await pipeline(stream, hash);
  return hash.digest("hex");
}

async function echo(target, size) {
  const body = randomBytes(size);
  const back = await read(await ask({ ...target, path: "/echo", method: "POST" }, body));
  if (!back.equals(body))
    throw new Error(`${size} octets came back as ${back.length} others`);
}

async function client(host, port, file, seconds) {
  const target = { host, port: Number(port), agent: new http.Agent({ keepAlive: true, maxSockets: 8 }) };
  let begin = performance.now();
  let size = 0;
  const response = await ask({ ...target, path: "/file" });
  response.on("data", (part) => { size += part.length; });
  const got = await digest(response);
  const speed = size / (performance.now() - begin) * 1000;
  if (got !== await digest(createReadStream(file)))
    throw new Error("the file is another");
  await echo(target, 1 << 20);

  begin = performance.now();
  let count = 0;
  const until = begin + 1000 * Number(seconds);
  await Promise.all(Array.from({ length: 8 }, async () => {
    for (; performance.now() < until; count++)
      await echo(target, 1000);
  }));
  const rate = count / (performance.now() - begin) * 1000;
  console.log(JSON.stringify({ speed, rate }));
  target.agent.destroy();
}

const [what, ...words] = process.argv.slice(2);
if (what === "serve")
  serve(...words);
else
  await client(...words);
