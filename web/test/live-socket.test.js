import assert from "node:assert/strict";
import { test } from "node:test";
import { LiveSocket, reconnectDelay } from "../src/api/live-socket.js";

class FakeSocket {
  /** @type {FakeSocket[]} */
  static all = [];
  constructor() {
    /** @type {string[]} */ this.sent = [];
    this.closed = false;
    /** @type {((event: any) => void) | null} */ this.onmessage = null;
    /** @type {(() => void) | null} */ this.onclose = null;
    FakeSocket.all.push(this);
  }
  send(/** @type {string} */ text) {
    this.sent.push(text);
  }
  close() {
    this.closed = true;
  }
  say(/** @type {object} */ message) {
    this.onmessage?.({ data: JSON.stringify(message) });
  }
  die() {
    this.onclose?.();
  }
}

function bench() {
  FakeSocket.all = [];
  let now = 0;
  let probes = 0;
  const socket = new LiveSocket({
    url: "ws://x",
    create: () => /** @type {any} */ (new FakeSocket()),
    now: () => now,
    random: () => 0,
    probe: async () => void probes++,
  });
  /** @type {any[]} */
  const heard = [];
  socket.addEventListener("message", (e) => heard.push(/** @type {CustomEvent} */ (e).detail));
  let hellos = 0;
  socket.addEventListener("hello", () => hellos++);
  return {
    socket,
    heard,
    hellos: () => hellos,
    probes: () => probes,
    last: () => /** @type {FakeSocket} */ (FakeSocket.all.at(-1)),
    /** Let time pass a second at a time, as the timer does. @param {number} seconds */
    pass(seconds) {
      for (let n = 0; n < seconds; n++) {
        now += 1000;
        socket.tick();
      }
    },
    /** @param {number} seconds */
    sleep(seconds) {
      now += seconds * 1000;
      socket.tick();
    },
  };
}

test("hello opens it, messages arrive, a ping is answered", () => {
  const { socket, heard, last, hellos } = bench();
  socket.start();
  assert.equal(socket.send({ type: "subscribe" }), false);
  last().say({ type: "hello", epoch: "e1", user: 1 });
  assert.deepEqual([socket.state, socket.epoch, hellos()], ["open", "e1", 1]);
  last().say({ type: "ping" });
  assert.deepEqual(last().sent, ['{"type":"pong"}']);
  last().say({ type: "token_delta", seq: 1 });
  assert.equal(heard.length, 1);
  socket.stop();
});

test("a lost socket comes back, later each time, and hello resets the patience", () => {
  const { socket, last, pass } = bench();
  socket.start();
  last().say({ type: "hello", epoch: "e1" });
  last().die();
  assert.equal(socket.state, "waiting");
  pass(1);
  assert.equal(socket.state, "connecting");
  last().die();
  pass(1);
  last().die();
  const before = FakeSocket.all.length;
  pass(1);
  assert.equal(FakeSocket.all.length, before + 1);
  last().say({ type: "hello", epoch: "e1" });
  last().die();
  pass(1);
  assert.equal(socket.state, "connecting");
  socket.stop();
});

test("delays grow to four seconds and never reach zero", () => {
  const delays = Array.from({ length: 12 }, (_, n) => reconnectDelay(n, () => 0.5));
  for (let n = 1; n < delays.length; n++) assert.ok(delays[n] >= delays[n - 1]);
  assert.ok(delays[0] >= 200 && delays[0] <= 400);
  assert.ok(reconnectDelay(11, () => 1) <= 4000);
  assert.ok(reconnectDelay(0, () => 0) > 0);
});

test("a socket that went silent is given up", () => {
  const { socket, last, pass } = bench();
  socket.start();
  last().say({ type: "hello", epoch: "e1" });
  const first = last();
  pass(45);
  assert.equal(first.closed, true);
  assert.notEqual(last(), first);
  socket.stop();
});

test("after a sleep of the machine it does not trust the old socket", () => {
  const { socket, last, sleep } = bench();
  socket.start();
  last().say({ type: "hello", epoch: "e1" });
  const first = last();
  sleep(20);
  assert.equal(first.closed, true);
  assert.equal(socket.state, "connecting");
  first.say({ type: "token_delta", seq: 9 });
  socket.stop();
});

test("a refused connection asks whether the session ended; a lost one does not", () => {
  const { socket, last, probes } = bench();
  socket.start();
  last().die();
  assert.equal(probes(), 1);
  socket.refresh();
  last().say({ type: "hello", epoch: "e1" });
  last().die();
  assert.equal(probes(), 1);
  socket.stop();
});

test("what is not JSON is ignored", () => {
  const { socket, last, heard } = bench();
  socket.start();
  last().onmessage?.({ data: "<html>" });
  last().onmessage?.({ data: "null" });
  assert.equal(heard.length, 0);
  socket.stop();
});
