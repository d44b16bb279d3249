// A Kafka for one test file: `logdb serve --temporary` (pip install '.[cli,http]').
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

export async function startLogdb() {
  const flags = ["serve", "--temporary", "--kafka", "127.0.0.1:0", "--json"];
  const server = spawn("logdb", flags, { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise((resolve) => server.once("exit", resolve));
  const line = await new Promise((resolve, reject) => {
    createInterface(server.stdout).once("line", resolve);
    server.once("error", reject);
    server.once("exit", (code) => reject(new Error(`logdb ended with ${code}`)));
  });
  const stop = () => {
    server.kill();
    return ended;
  };
  return { brokers: [JSON.parse(line).kafka], stop };
}
