// One event loop: Node's own HTTP server. A request makes a document of JSON and reads it, some
// 0.5 to 4 ms, most of them short.
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
