// Made-up runs for a page over a history: one real run (a line of `lockstep bench history
// --export`) again and again, with noise, a level that changes twice and one that stays.
//
//   node runs.mjs RUN.jsonl > RUNS.jsonl
import {readFileSync} from "node:fs";

const RUNS = 40;
const real = JSON.parse(readFileSync(process.argv[2], "utf8").split("\n")[0]);

// A fixed sequence (a multiplicative congruential generator), so that the page is always the same.
let state = 1;
const uniform = () => (state = state * 48271 % 2147483647) / 2147483647;

const LEVELS = {
  "kernel/a_benchmark_with_a_name_that_is_longer_than_a_phone_is_wide/threads_1/manual_time":
    (i) => i < 14 ? 1 : i < 27 ? 1.3 : 1.12,
  "steady": () => 1,
};
for (let i = 0; i < RUNS; ++i) {
  const benchmarks = Object.entries(LEVELS).map(([name, level]) => ({
    ...real.benchmarks[0], name,
    samples: [{value: 0.002 * level(i) * (1 + 0.02 * uniform())}],
  }));
  const commit = `${i.toString(16).padStart(2, "0")}`.repeat(20);
  console.log(JSON.stringify({...real, commit, benchmarks}));
}
