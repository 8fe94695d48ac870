// llama.cpp behind lockstep's engine protocol, version 1: docs/engine-protocol.md.
//
//   node engine.mjs
//
// Steps give probabilities: the library hands out no logits. They are a function of the logits,
// binary32 from exp to quotient, so where they differ the logits differ.
//
// Options of "load":
//   kv      f32 (the default here) or f16 (llama.cpp's default): what keys and values are kept as
//   flash   off (the default here), on or auto (llama.cpp's default): fused attention
import {mkdtempSync, rmSync} from "node:fs";
import {tmpdir} from "node:os";
import {join} from "node:path";
import {createInterface} from "node:readline";
import {getLlama, getModuleVersion} from "node-llama-cpp";

const kvTypes = {f32: 0, f16: 1};  // ggml's ids
const flashModes = {off: false, on: true, auto: "auto"};

// Loading tries several things and complains of each; what it says first belongs to a failure.
let complaint = "";
const llama = await getLlama({
  build: "never",
  gpu: false,
  logLevel: "error",
  logger: (_, message) => { complaint ||= message.trim(); },
  progressLogs: false,
});
const bindings = llama._bindings;

class Refusal extends Error {}
function refuse(what) {
  throw new Refusal(what);
}

// The values of `keys` in `object`, which has these and no others.
function take(object, keys) {
  if (object === null || typeof object !== "object") refuse("it holds something else than an object");
  for (const key of keys) if (!(key in object)) refuse(`'${key}' is missing`);
  for (const key of Object.keys(object)) {
    if (!keys.includes(key)) refuse(`it has the key '${key}', which the protocol does not know`);
  }
  return object;
}

function whole(value, name, low, high) {
  if (!Number.isInteger(value) || value < low || value > high) {
    refuse(`'${name}' is no whole number from ${low} to ${high}`);
  }
  return value;
}

let model = null;
let context = null;
let sampler = null;
let lengths = [];  // of each sequence
let room = 0;      // positions of a sequence
let vocabulary = 0;

async function drop() {
  if (context !== null) await context.dispose();
  if (sampler !== null) sampler.dispose();
  if (model !== null) await model.dispose();
  [model, context, sampler, lengths] = [null, null, null, []];
}

async function load(request) {
  const {model: modelPath, positions, sequences, threads, options} =
      take(request, ["model", "positions", "sequences", "threads", "options"]);
  if (typeof modelPath !== "string") refuse("'model' is no text");
  whole(positions, "positions", 0, 2 ** 24);
  whole(sequences, "sequences", 1, 64);
  whole(threads, "threads", 1, 256);
  const {kv = "f32", flash = "off", ...others} = options;
  if (Object.keys(others).length > 0) refuse(`there is no option '${Object.keys(others)[0]}'`);
  if (!(kv in kvTypes)) refuse("'kv' is neither f32 nor f16");
  if (!(flash in flashModes)) refuse("'flash' is neither off nor on nor auto");
  await drop();
  complaint = "";
  try {
    model = await llama.loadModel({modelPath, vocabOnly: positions === 0});
  } catch (error) {
    refuse(`${error.message}: ${complaint}`);
  }
  // The library says the size of its vocabulary only where the file is read.
  vocabulary = model.fileInfo.metadata.tokenizer.ggml.tokens.length;
  if (positions > 0) await makeContext(positions, sequences, threads, kv, flash);
  return {vocabulary};
}

// The library's own context adds queues; this is the thin layer over llama.cpp below it.
async function makeContext(positions, sequences, threads, kv, flash) {
  room = positions;
  // A context is shared out among its sequences, in multiples of 256.
  const size = Math.ceil(positions / 256) * 256 * sequences;
  context = new bindings.AddonContext(model._model, {
    contextSize: size,
    batchSize: size,
    sequences,
    threads,
    flashAttention: flashModes[flash],
    kvCacheKeyType: kvTypes[kv],
    kvCacheValueType: kvTypes[kv],
    swaFullCache: true,  // a rollback behind a sliding window needs the rows
  });
  if (!(await context.init())) refuse("llama.cpp makes no context of it");
  sampler = new bindings.AddonSampler(model._model);
  // Without any cut every token keeps a probability.
  sampler.applyConfig({temperature: 1, topK: 0, topP: 1, minP: 0, seed: 1});
  lengths = Array(sequences).fill(0);
}

function sequenceOf(value, name) {
  if (context === null) refuse("no model is loaded");
  return whole(value, name, 0, lengths.length - 1);
}

// Checks all of a step before anything of it is done.
function rowsOf(object) {
  const {sequence, position, tokens, output} =
      take(object, ["sequence", "position", "tokens", "output"]);
  sequenceOf(sequence, "sequence");
  if (position !== lengths[sequence]) {
    refuse(`sequence ${sequence} has ${lengths[sequence]} positions`);
  }
  if (typeof output !== "boolean") refuse("'output' is neither true nor false");
  if (!Array.isArray(tokens) || tokens.length === 0) refuse("'tokens' is no array of some");
  for (const token of tokens) whole(token, "token", 0, vocabulary - 1);
  if (tokens.length > room - position) refuse(`sequence ${sequence} has room for fewer`);
  return {sequence, position, tokens: Uint32Array.from(tokens), output};
}

async function step(request) {
  const {rows} = take(request, ["rows"]);
  if (!Array.isArray(rows) || rows.length === 0) refuse("'rows' is no array of some");
  const all = rows.map(rowsOf);
  if (new Set(all.map(({sequence}) => sequence)).size !== all.length) {
    refuse("a sequence stands in the step twice");
  }
  context.initBatch(all.reduce((sum, {tokens}) => sum + tokens.length, 0));
  const places = all.map(({sequence, position, tokens}) =>
      context.addToBatch(sequence, position, tokens, Uint32Array.of(tokens.length - 1))[0]);
  await context.decodeBatch();
  for (const {sequence, tokens} of all) lengths[sequence] += tokens.length;
  const values = [];
  for (const [i, {output}] of all.entries()) {
    if (output) values.push(Buffer.from((await probabilitiesOf(places[i])).buffer));
  }
  const binary = Buffer.concat(values);
  return {bytes: binary.length, binary};
}

async function probabilitiesOf(place) {
  const [, pairs] = await context.sampleToken(place, sampler, true);
  const byToken = new Float32Array(vocabulary);
  for (let i = 0; i < pairs.length; i += 2) byToken[pairs[i]] = pairs[i + 1];
  return byToken;
}

function cut(sequence, length) {
  if (!context.removeTokenCellsFromSequence(sequence, length, -1)) refuse("llama.cpp refuses it");
  lengths[sequence] = length;
}

function rollback(request) {
  const {sequence, length} = take(request, ["sequence", "length"]);
  sequenceOf(sequence, "sequence");
  cut(sequence, whole(length, "length", 0, lengths[sequence]));
  return {};
}

// The library copies no sequence, but saves one and restores it as another.
async function fork(request) {
  const {from, to} = take(request, ["from", "to"]);
  sequenceOf(from, "from");
  sequenceOf(to, "to");
  if (lengths[to] !== 0) refuse(`sequence ${to} is not empty`);
  if (lengths[from] === 0) return {};
  const folder = mkdtempSync(join(tmpdir(), "lockstep_fork_"));
  try {
    const file = join(folder, "state");
    await context.saveSequenceStateToFile(file, from, new Uint32Array(0));
    await context.loadSequenceStateFromFile(file, to, room);
  } finally {
    rmSync(folder, {recursive: true});
  }
  lengths[to] = lengths[from];
  return {};
}

function reset(request) {
  take(request, []);
  for (let sequence = 0; sequence < lengths.length; ++sequence) cut(sequence, 0);
  return {};
}

function tokenize(request) {
  const {text} = take(request, ["text"]);
  if (typeof text !== "string") refuse("'text' is no text");
  if (model === null) refuse("no model is loaded");
  return {tokens: [...model._model.tokenize(text, false)]};
}

async function hello(request) {
  if (take(request, ["protocol"]).protocol !== 1) refuse("this is version 1 of the protocol");
  const system = llama.systemInfo.replace(/\s*\|\s*/g, " ").trim();
  return {
    protocol: 1,
    engine: `llama.cpp ${llama.llamaCppRelease.release}, ` +
        `node-llama-cpp ${await getModuleVersion()}, ${system}`,
    values: "probabilities",
    can: ["fork", "tokenize"],
    options: ["kv", "flash"],
  };
}

const deeds = {hello, load, step, rollback, fork, reset, tokenize};
let id = null;
for await (const line of createInterface({input: process.stdin})) {
  let answer;
  id = null;
  let what;
  try {
    const {id: itsId = null, do: itsWhat, ...request} = JSON.parse(line);
    [id, what] = [itsId, itsWhat];
    if (what === "quit") {
      answer = take(request, []);
    } else {
      if (!Object.hasOwn(deeds, what)) refuse(`there is nothing to do that is called '${what}'`);
      answer = await deeds[what](request);
    }
  } catch (error) {
    answer = {error: String(error.message ?? error)};
    what = undefined;
  }
  const {binary, ...rest} = answer;
  process.stdout.write(JSON.stringify({id, ...rest}) + "\n");
  if (binary !== undefined) process.stdout.write(binary);
  if (what === "quit") break;
}
process.exit(0);
