// llama.cpp on one GGUF file, driven a line at a time.
//
//   node llama.mjs MODEL.gguf CONTEXT_LENGTH
//
// Answers each line of standard input with one line of JSON on standard output, after a first line
// that says what it is. Times exclude loading, sampling and this driver: they are those of
// llama_decode alone. Token ids are small and arbitrary; what they say does not matter.
//
//   prefill N THREADS         {"seconds"}: N tokens from position 0, logits of the last
//   decode K DEPTH THREADS    {"seconds"}: K single tokens behind DEPTH rows, logits of each
//   bits N BATCH THREADS STRIDE   {"digests"}: of the logits at positions STRIDE - 1,
//                             2 * STRIDE - 1, ... of a prompt of N tokens, BATCH at a time
//   quit
//
// An error is {"error"}; the next line is read all the same.
import {createHash} from "node:crypto";
import {createInterface} from "node:readline";
import {getLlama, getModuleVersion} from "node-llama-cpp";

const [modelPath, contextText] = process.argv.slice(2);
const contextLength = Number(contextText);
if (modelPath === undefined || !(contextLength > 0)) {
  process.stderr.write("usage: node llama.mjs MODEL.gguf CONTEXT_LENGTH\n");
  process.exit(2);
}

const llama = await getLlama({build: "never", gpu: false, logLevel: "error", progressLogs: false});
const model = await llama.loadModel({modelPath});
const bindings = llama._bindings;

// The library's own context adds queues; this is the thin layer over llama.cpp below it. Defaults
// are llama.cpp's: flash attention where it thinks it good, keys and values as F16.
async function makeContext() {
  const context = new bindings.AddonContext(model._model, {
    contextSize: contextLength,
    batchSize: contextLength,
    sequences: 1,
    flashAttention: "auto",
    threads: 1,
  });
  if (!(await context.init())) throw new Error("no context");
  return context;
}

// A context for prompts and one for each depth, so that no row is computed twice for a time.
const rooms = new Map();
async function roomOf(name, threads) {
  if (!rooms.has(name)) rooms.set(name, {context: await makeContext(), filled: 0});
  const room = rooms.get(name);
  room.context.setThreads(threads);
  return room;
}

const sampler = new bindings.AddonSampler(model._model);
// Without any cut every token keeps a probability.
sampler.applyConfig({temperature: 1, topK: 0, topP: 1, minP: 0, seed: 1});

const token = (index) => 2 + ((index * 7919) % 251);
const tokens = (first, count) => Uint32Array.from({length: count}, (_, i) => token(first + i));

// Puts tokens [first, first + count) into the next batch and runs it. Returns seconds, and the
// places of the logits that were asked for.
async function decode(context, first, count, wanted) {
  context.initBatch(count);
  const places = context.addToBatch(0, first, tokens(first, count), Uint32Array.from(wanted));
  const start = process.hrtime.bigint();
  await context.decodeBatch();
  return {seconds: Number(process.hrtime.bigint() - start) * 1e-9, places};
}

function rollback(context, length) {
  if (!context.removeTokenCellsFromSequence(0, length, -1)) throw new Error("no rollback");
}

async function prefill(count, threads) {
  const {context} = await roomOf("prompt", threads);
  rollback(context, 0);
  return (await decode(context, 0, count, [count - 1])).seconds;
}

async function decodeAt(steps, depth, threads) {
  const room = await roomOf(depth, threads);
  if (room.filled < depth) await decode(room.context, 0, depth, [depth - 1]);
  rollback(room.context, depth);
  room.filled = depth;
  let seconds = 0;
  for (let i = 0; i < steps; ++i) seconds += (await decode(room.context, depth + i, 1, [0])).seconds;
  return seconds;
}

// Probabilities are all that the library gives; they are a function of the logits, so where they
// differ the logits differ.
async function digestOf(context, place) {
  const [, probabilities] = await context.sampleToken(place, sampler, true);
  const values = [...probabilities];
  const byToken = new Float32Array(values.length / 2);
  for (let i = 0; i < values.length; i += 2) byToken[values[i]] = values[i + 1];
  return createHash("sha256").update(Buffer.from(byToken.buffer)).digest("hex").slice(0, 32);
}

async function bits(count, batch, threads, stride) {
  const {context} = await roomOf("prompt", threads);
  rollback(context, 0);
  const digests = [];
  for (let first = 0; first < count; first += batch) {
    const size = Math.min(batch, count - first);
    // Batches of one shape throughout: the last token's logits are always asked for.
    const all = Array.from({length: size}, (_, i) => i);
    const wanted = all.filter((i) => i === size - 1 || (first + i + 1) % stride === 0);
    const {places} = await decode(context, first, size, wanted);
    for (const [i, place] of places.entries()) {
      if ((first + wanted[i] + 1) % stride === 0) digests.push(await digestOf(context, place));
    }
  }
  return digests;
}

async function answer(line) {
  const [what, ...numbers] = line.trim().split(/\s+/);
  const values = numbers.map(Number);
  if (!values.every((value) => Number.isInteger(value) && value >= 0)) {
    throw new Error(`'${line}' holds no whole numbers`);
  }
  if (what === "prefill") return {seconds: await prefill(values[0], values[1])};
  if (what === "decode") return {seconds: await decodeAt(values[0], values[1], values[2])};
  if (what === "bits") return {digests: await bits(...values)};
  throw new Error(`'${what}' is no request`);
}

const say = (object) => process.stdout.write(JSON.stringify(object) + "\n");
say({
  library: `node-llama-cpp ${await getModuleVersion()}`,
  llama: `llama.cpp ${llama.llamaCppRelease.release}`,
  system: llama.systemInfo.replace(/\s*\|\s*/g, " ").trim(),
});
for await (const line of createInterface({input: process.stdin})) {
  if (line.trim() === "quit") break;
  try {
    say(await answer(line));
  } catch (error) {
    say({error: String(error.message ?? error)});
  }
}
process.exit(0);
