// What page.json says, in three tables, every two seconds while somebody looks. Text goes in as text, never as HTML.
"use strict";

const PERIOD_MS = 2000;
const DEADLINE_MS = 5000;

const STATES = { ready: "good", starting: "wait", stopping: "wait", backoff: "wait", stopped: "wait", degraded: "bad", lost: "bad" };
const PODS = { Running: "good", Completed: "good", Succeeded: "good" };

let before = null; // CPU times of the last answer, for rates

function cell(text, className) {
  const made = document.createElement("td");
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

function holding(element) {
  const made = cell("");
  made.append(element);
  return made;
}

function row(...cells) {
  const made = document.createElement("tr");
  made.append(...cells);
  return made;
}

function fill(id, rows, empty) {
  const table = document.getElementById(id);
  if (!rows.length) {
    const nothing = cell(empty, "empty");
    nothing.colSpan = table.tHead.rows[0].cells.length;
    rows = [row(nothing)];
  }
  table.tBodies[0].replaceChildren(...rows);
}

function duration(seconds) {
  if (seconds < 0) return "";
  if (seconds < 120) return `${Math.floor(seconds)}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}

function mebibytes(bytes) {
  return bytes ? `${(bytes / 1048576).toFixed(1)} MiB` : "";
}

function milliseconds(seconds) {
  return seconds === null ? "" : `${(seconds * 1000).toFixed(1)} ms`;
}

function name(process, index, all) {
  const made = cell("");
  const branch = document.createElement("span");
  branch.className = "branch";
  branch.textContent = index === 0 ? "" : index === 1 ? "└ " : index === all.length - 1 ? "  └ " : "  ├ ";
  made.append(branch, process.pid && index > 1 ? asking(process.name, `actor/${process.name}`) : process.name);
  return made;
}

// A button that asks why the subject waits.
function asking(text, subject) {
  const made = document.createElement("button");
  made.type = "button";
  made.className = "ask";
  made.title = `Why does ${subject} wait?`;
  made.textContent = text;
  made.addEventListener("click", () => ask(subject));
  return made;
}

async function ask(subject) {
  const sentence = document.getElementById("why-sentence"), below = document.getElementById("why-lines");
  document.getElementById("why-subject").value = subject;
  below.textContent = "";
  sentence.className = "";
  try {
    const query = `why.json?subject=${encodeURIComponent(subject)}`;
    const answer = await fetch(query, { cache: "no-store", signal: AbortSignal.timeout(DEADLINE_MS) });
    if (!answer.ok) throw new Error((await answer.text()).trim());
    const data = await answer.json();
    sentence.textContent = data.sentence;
    below.textContent = data.lines.join("\n");
  } catch (error) {
    sentence.className = "bad";
    sentence.textContent = error.message;
  }
  sentence.closest("section").scrollIntoView({ block: "nearest" });
}

function cpu(process, at) {
  const old = before && before.at < at && before.cpu[process.name];
  if (!old || old.incarnation !== process.incarnation) return "";
  return `${Math.max(0, (100 * (process.cpu_s - old.cpu_s)) / (at - before.at)).toFixed(1)} %`;
}

function showProcesses(data) {
  fill("processes", data.processes.map((one, index, all) => row(
    name(one, index, all),
    cell(one.pid || "", "n"),
    cell(one.restart_in_s ? `${one.state} ${one.restart_in_s.toFixed(1)}s` : one.state, STATES[one.state] || "bad"),
    cell(one.incarnation, "n"),
    cell(one.uptime_s ? duration(one.uptime_s) : "", "n"),
    cell(one.restarts, one.restarts ? "n some" : "n"),
    cell(one.mailbox === null ? "" : one.mailbox, one.mailbox ? "n some" : "n"),
    cell(milliseconds(one.delay_s), "n"),
    cell(cpu(one, data.time), "n"),
    cell(mebibytes(one.memory_bytes), "n"),
    cell(one.last_death, "long"),
  )), "No process.");
}

function showPods(data) {
  if (data.pods === null) {
    fill("pods", [], "The status actor does not answer.");
    return;
  }
  fill("pods", data.pods.map((one) => row(
    cell(one.namespace),
    holding(asking(one.name, `pod/${one.namespace}/${one.name}`)),
    cell(one.ready, "n"),
    cell(one.status, PODS[one.status] || (/BackOff|Err|Fail|Evicted|Unknown/.test(one.status) ? "bad" : "wait")),
    cell(one.restarts, one.restarts.startsWith("0") ? "n" : "n some"),
    cell(one.age, "n"),
    cell(one.ip),
  )), "No pods.");
}

function showDeaths(data) {
  fill("deaths", data.deaths.map((one) => row(
    cell(`${duration(data.time - one.time)} ago`),
    cell(one.actor),
    cell(one.incarnation, "n"),
    cell(one.text, "long"),
  )), "None: nothing of the agent has died badly.");
}

function showNumbers(data) {
  const total = (key) => data.processes.reduce((sum, one) => sum + one[key], 0);
  const running = (data.pods || []).filter((one) => one.status === "Running").length;
  const shown = [
    [data.processes.filter((one) => one.state === "ready").length + " / " + data.processes.length, "processes in service"],
    [total("restarts"), "restarts"],
    [data.pods === null ? "?" : `${running} / ${data.pods.length}`, "pods running"],
    [mebibytes(total("memory_bytes")), "memory of the agent"],
  ];
  document.getElementById("numbers").replaceChildren(...shown.map(([number, text]) => {
    const made = document.createElement("div");
    const bold = document.createElement("b");
    const label = document.createElement("span");
    bold.textContent = number;
    label.textContent = text;
    made.append(bold, label);
    return made;
  }));
}

function show(data) {
  document.getElementById("node").textContent = data.node;
  document.title = `nodevisor ${data.node}`;
  showNumbers(data);
  showProcesses(data);
  showPods(data);
  showDeaths(data);
  const cpu = Object.fromEntries(data.processes.map((one) => [one.name, one]));
  if (!before || data.time > before.at) before = { at: data.time, cpu };
}

function say(text, bad) {
  const state = document.getElementById("state");
  state.textContent = text;
  state.className = bad ? "bad" : "";
}

async function refresh() {
  try {
    const answer = await fetch("page.json", { cache: "no-store", signal: AbortSignal.timeout(DEADLINE_MS) });
    if (!answer.ok) throw new Error(`the agent says ${answer.status}`);
    show(await answer.json());
    say(`live, as of ${new Date().toLocaleTimeString()}`, false);
  } catch (error) {
    say(`no news: ${error.message}; trying again`, true);
  }
}

let timer = null;

async function run() {
  clearTimeout(timer);
  if (document.hidden) return; // asks nothing while nobody looks
  await refresh();
  clearTimeout(timer);
  timer = setTimeout(run, PERIOD_MS);
}

document.getElementById("why").addEventListener("submit", (event) => {
  event.preventDefault();
  ask(document.getElementById("why-subject").value.trim());
});
document.addEventListener("visibilitychange", run);
run();
