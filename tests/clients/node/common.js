// What the applications of this folder share: checks, and a loop that writes until it is told to stop.
"use strict";
const assert = require("node:assert/strict");
const readline = require("node:readline");
const { inspect } = require("node:util");

const same = (found, wanted, what) => assert.deepEqual(found, wanted, what && `${what}: ${show(found)}, not ${show(wanted)}`);
const show = (value) => JSON.stringify(value, (_, v) => (typeof v === "bigint" ? `${v}n` : v));

/// The error that `action` ends with; without one the application fails.
async function refused(action, what) {
  try {
    await action();
  } catch (error) {
    return error;
  }
  throw new Error(`${what} was not refused`);
}

/// The number that MySQL gave to an error, wherever the library has put it: Prisma's at a COMMIT is its driver's, elsewhere one of its own.
const number = (error) => {
  const places = [error, error?.original, error?.parent, error?.driverError].map((place) => place?.errno);
  const conflict = error?.code === "P2034" ? 1213 : undefined;
  const prisma = [error?.cause, error?.meta?.driverAdapterError?.cause].map((cause) => cause?.originalCode);
  return Number([...places, conflict, ...prisma].find((found) => found !== undefined));
};

/// Runs `one(number)` for 1, 2, 3 until a line comes in; a transaction that MySQL rolled back as a deadlock runs again.
async function write(one) {
  let stop = false;
  readline.createInterface({ input: process.stdin }).once("line", () => (stop = true)).once("close", () => (stop = true));
  console.log("writes");
  let [done, retried] = [0, 0];
  while (!stop) {
    try {
      await one(done + 1);
      done += 1;
    } catch (error) {
      if (number(error) !== 1213) throw error;
      retried += 1;
    }
  }
  return { numbers: done, retried };
}

/// `node NAME.js PORT DATABASE STEP`: one step of an application, which is made by `make({port, database})`.
async function main(make) {
  const [port, database, step] = process.argv.slice(2);
  const app = await make({ port: Number(port), database });
  try {
    const answer = await app[step]();
    if (answer) console.log(JSON.stringify(answer));
  } finally {
    await app.close();
  }
}

const start = (make) =>
  main(make).catch((error) => {
    console.error(inspect(error, { depth: null }));
    process.exit(1);
  });

module.exports = { same, refused, number, write, start };
