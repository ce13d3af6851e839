// Node's own HTTP server: one event loop. A request writes and parses JSON, about 0.5 to 4 ms,
// mostly short.
const http = require("http");

function answer() {
  const count = Math.min(12000, Math.floor(-2000 * Math.log(1 - Math.random()))) + 200;
  const rows = [];
  for (let n = 0; n < count; n++) rows.push({ id: n, name: "row " + n, values: [n, n + 1] });
  return JSON.parse(JSON.stringify(rows)).length + "\n";
}

http.createServer((request, response) => {
  const body = answer();
  response.writeHead(200, { "Content-Length": body.length });
  response.end(body);
}).listen(Number(process.argv[2]), "127.0.0.1");
