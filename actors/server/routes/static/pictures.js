// Four pictures as inline SVG: the graph of messages, the last hour, a pod's start, and a flame graph.
// Attributes and classes only, because the page's policy allows no inline style. Text goes in as text.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const GRAPH_MS = 2000;
const SLOW_MS = 10000;
const ASK_MS = 5000;

function draw(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function tip(text) {
  const made = draw("title", {});
  made.textContent = text;
  return made;
}

function words(x, y, text, attributes = {}) {
  const made = draw("text", { x, y, ...attributes });
  made.textContent = text;
  return made;
}

function put(id, picture) {
  document.getElementById(id).replaceChildren(picture);
}

function nothing(id, text) {
  const made = document.createElement("p");
  made.className = "empty";
  made.textContent = text;
  put(id, made);
}

async function load(path, deadline = ASK_MS) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(deadline) });
  if (!answer.ok) throw new Error((await answer.text()).trim() || `the agent says ${answer.status}`);
  return answer.json();
}

function span(seconds) {
  if (seconds < 0.001) return `${(seconds * 1e6).toFixed(0)} µs`;
  return seconds < 1 ? `${(seconds * 1000).toFixed(1)} ms` : `${seconds.toFixed(2)} s`;
}

// Who talks to whom

const counted = []; // answers of the last 20 s: rates over some seconds show seldom messages, too

function rates(data) {
  counted.push(data);
  while (counted.length > 2 && data.time - counted[0].time > 20) counted.shift();
  const old = counted[0];
  const seconds = data.time - old.time;
  const before = new Map(old.edges.map((edge) => [`${edge.from}>${edge.to}`, edge]));
  return data.edges.map((edge) => {
    const last = before.get(`${edge.from}>${edge.to}`) || { count: 0, queue_s: 0 };
    const count = edge.count - last.count;
    const usable = seconds > 0 && count > 0;
    return {
      ...edge,
      rate: usable ? count / seconds : 0,
      queue: usable ? (edge.queue_s - last.queue_s) / count : edge.queue_s / Math.max(1, edge.count),
    };
  });
}

function queueClass(seconds) {
  return seconds < 0.002 ? "good" : seconds < 0.02 ? "wait" : "bad";
}

function showGraph(data) {
  const width = 1140, height = 640, cx = width / 2, cy = height / 2, rx = 400, ry = 270;
  const names = data.nodes.map((node) => node.name);
  const edges = rates(data).filter((edge) => names.includes(edge.to));
  if (edges.some((edge) => edge.from === "console")) names.push("console");
  const place = new Map(names.map((name, index) => {
    const angle = (2 * Math.PI * index) / names.length - Math.PI / 2;
    return [name, { x: cx + rx * Math.cos(angle), y: cy + ry * Math.sin(angle), right: Math.cos(angle) >= -0.01 }];
  }));
  const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Graph of messages between actors" });
  for (const edge of edges.sort((one, other) => one.rate - other.rate)) {
    const from = place.get(edge.from), to = place.get(edge.to);
    if (!from || !to || edge.from === edge.to) continue;
    const mx = (from.x + to.x) / 2 + (cx - (from.x + to.x) / 2) * 0.45 + (to.y - from.y) * 0.06;
    const my = (from.y + to.y) / 2 + (cy - (from.y + to.y) / 2) * 0.45 - (to.x - from.x) * 0.06;
    const width_ = edge.rate ? Math.min(12, 1 + 2.2 * Math.log2(1 + edge.rate)) : 0.4;
    picture.append(draw("path", {
      d: `M${from.x.toFixed(1)},${from.y.toFixed(1)} Q${mx.toFixed(1)},${my.toFixed(1)} ${to.x.toFixed(1)},${to.y.toFixed(1)}`,
      class: `edge line-${queueClass(edge.queue)}`,
      "stroke-width": width_.toFixed(1),
      "data-edge": `${edge.from}>${edge.to}`,
    }, tip(`${edge.from} → ${edge.to}: ${edge.rate.toFixed(1)} messages a second, ${span(edge.queue)} in the mailbox, ${edge.count} in all`)));
  }
  const known = new Map(data.nodes.map((node) => [node.name, node]));
  for (const [name, at] of place) {
    const node = known.get(name) || { state: "ready", mailbox: 0 };
    const state = node.state === "ready" ? "good" : node.state === "degraded" || node.state === "lost" ? "bad" : "wait";
    const label = node.mailbox ? `${name} (${node.mailbox})` : name;
    picture.append(
      draw("circle", { cx: at.x, cy: at.y, r: 9, class: "node" }, tip(`${name}: ${node.state}, ${node.mailbox} waiting`)),
      draw("circle", { cx: at.x, cy: at.y, r: 4, class: `fill-${state}` }),
      words(at.x + (at.right ? 15 : -15), at.y + 4, label, { "text-anchor": at.right ? "start" : "end", class: "label" }),
    );
  }
  put("graph", picture);
  chooseFrom("flame-actor", data.nodes.map((node) => node.name).filter((name) => name !== "supervisor"));
}

// The last hour

function showHour(data) {
  const width = 1140, left = 230, right = width - 20, row = 20, now = data.time, from = now - 3600;
  const x = (at) => left + (Math.max(from, Math.min(now, at)) - from) / 3600 * (right - left);
  const actors = [...new Set(data.faults.map((fault) => fault.actor))].sort();
  const rows = actors.length + data.pods.length;
  if (!rows) {
    nothing("hour", data.problem || "No pod, and no fault in the last hour.");
    return;
  }
  const height = 34 + rows * row;
  const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Faults, restarts and readiness of the last hour" });
  for (let minutes = 60; minutes >= 0; minutes -= 10) {
    const at = x(now - minutes * 60);
    picture.append(
      draw("line", { x1: at, x2: at, y1: 20, y2: height, class: "axis" }),
      words(at, 14, minutes ? `-${minutes} min` : "now", { "text-anchor": minutes ? "middle" : "end", class: "soft" }),
    );
  }
  let y = 24;
  for (const actor of actors) {
    picture.append(words(left - 10, y + 14, actor, { "text-anchor": "end" }));
    const own = data.faults.filter((one) => one.actor === actor);
    for (const fault of own.sort((one, other) => (one.type === "Warning") - (other.type === "Warning"))) {
      const kind = fault.type === "Warning" ? "bad" : "good";
      picture.append(draw("circle", { cx: x(fault.time), cy: y + 10, r: 5, class: `fill-${kind}`, "data-fault": `${actor} ${fault.reason}` },
        tip(`${new Date(fault.time * 1000).toLocaleTimeString()} ${fault.reason}${fault.count > 1 ? ` (${fault.count} times)` : ""}: ${fault.text}`)));
    }
    y += row;
  }
  for (const pod of data.pods) {
    picture.append(words(left - 10, y + 14, pod.name.length > 34 ? `${pod.name.slice(0, 33)}…` : pod.name, { "text-anchor": "end" }));
    pod.changes.forEach(([at, ready], index) => {
      const end = index + 1 < pod.changes.length ? pod.changes[index + 1][0] : pod.gone || now;
      if (end < from) return;
      picture.append(draw("rect", {
        x: x(at).toFixed(1), y: y + 5, width: Math.max(1, x(end) - x(at)).toFixed(1), height: row - 10,
        class: ready ? "fill-good" : "fill-wait", "data-pod": pod.name,
      }, tip(`${pod.name}: ${ready ? "ready" : "not ready"} since ${new Date(at * 1000).toLocaleTimeString()}`)));
    });
    y += row;
  }
  put("hour", picture);
}

// The start of a pod

let starts = null;

function chooseFrom(id, names) {
  const select = document.getElementById(id);
  const present = [...select.options].map((option) => option.value);
  if (present.length === names.length && present.every((name, index) => name === names[index])) return;
  const chosen = select.value;
  select.replaceChildren(...names.map((name) => new Option(name, name)));
  if (names.includes(chosen)) select.value = chosen;
}

function showStarts(data) {
  starts = data;
  chooseFrom("timeline-pod", data.pods.map((pod) => `${pod.namespace}/${pod.name}`));
  fill("totals", data.totals.map((one) => row(
    cell(one.step), cell(one.count, "n"), cell(span(one.median_s), "n"), cell(span(one.most_s), "n"), cell(span(one.total_s), "n"),
  )), data.problem || "No start of a pod is recorded.");
  showStart();
}

function showStart() {
  const chosen = document.getElementById("timeline-pod").value;
  const pod = starts && starts.pods.find((one) => `${one.namespace}/${one.name}` === chosen);
  if (!pod) {
    nothing("timeline", (starts && starts.problem) || "No start of a pod is recorded since pod_workers started.");
    return;
  }
  const steps = [...(pod.steps || [])].sort((one, other) => one.began_ns - other.began_ns);
  const ends = Math.max(pod.ready_ns || 0, ...steps.map((step) => step.ended_ns));
  const whole = Math.max(1, ends - pod.began_ns);
  const width = 1140, left = 230, right = width - 110, line = 22, height = 30 + steps.length * line;
  const x = (at) => left + (at - pod.began_ns) / whole * (right - left);
  const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Start of ${chosen}` });
  for (let part = 0; part <= 4; part += 1) {
    const at = left + (right - left) * part / 4;
    picture.append(
      draw("line", { x1: at, x2: at, y1: 18, y2: height, class: "axis" }),
      words(at, 13, span(whole / 1e9 * part / 4), { "text-anchor": "middle", class: "soft" }),
    );
  }
  steps.forEach((step, index) => {
    const y = 24 + index * line, took = (step.ended_ns - step.began_ns) / 1e9;
    const label = step.detail ? `${step.name} ${step.detail}` : step.name;
    picture.append(
      words(left - 10, y + 13, label.length > 34 ? `${label.slice(0, 33)}…` : label, { "text-anchor": "end" }),
      draw("rect", {
        x: x(step.began_ns).toFixed(1), y, width: Math.max(1.5, x(step.ended_ns) - x(step.began_ns)).toFixed(1), height: line - 7, rx: 2,
        class: step.error ? "fill-bad" : "fill-good", "data-step": step.name,
      }, tip(`${label}: ${span(took)}${step.error ? `: ${step.error}` : ""}`)),
      words(x(step.ended_ns) + 6, y + 13, span(took), { class: "soft" }),
    );
  });
  if (pod.ready_ns) {
    const at = x(pod.ready_ns);
    picture.append(draw("line", { x1: at, x2: at, y1: 18, y2: height, class: "line-good", "stroke-width": 2 }, tip("ready or finished")));
  }
  put("timeline", picture);
}

// Where an actor's time goes

function hue(text) {
  let number = 7;
  for (const letter of text) number = (number * 31 + letter.charCodeAt(0)) % 65521;
  return `hsl(${12 + number % 42} 85% ${60 + number % 13}%)`;
}

function showFlame(data) {
  const width = 1140, line = 18;
  const [, whole, children] = data.root;
  if (!whole || !children.length) {
    nothing("flame", `${data.actor} only waited in ${data.samples} samples of its threads.`);
    return;
  }
  const boxes = [];
  let depth = 0;
  const visit = ([name, count, below], x, level) => {
    boxes.push({ name, count, x, level });
    depth = Math.max(depth, level);
    for (const child of below) {
      visit(child, x, level + 1);
      x += child[1];
    }
  };
  visit(data.root, 0, 0);
  const picture = draw("svg", { viewBox: `0 0 ${width} ${(depth + 1) * line + 4}`, role: "img", "aria-label": `Flame graph of ${data.actor}` });
  for (const box of boxes) {
    const wide = width * box.count / whole, x = width * box.x / whole, y = box.level * line;
    const made = draw("g", {}, tip(`${box.name}: ${box.count} samples, ${(100 * box.count / whole).toFixed(1)} %`),
      draw("rect", { x: x.toFixed(1), y, width: Math.max(0.3, wide - 0.5).toFixed(1), height: line - 1, rx: 2, fill: hue(box.name.split(" (")[0]), "data-frame": box.name }));
    const fits = Math.floor((wide - 6) / 6.2);
    if (fits > 2) made.append(words(x + 3, y + 13, box.name.slice(0, fits), { class: "onbar" }));
    picture.append(made);
  }
  put("flame", picture);
}

async function sample() {
  const actor = document.getElementById("flame-actor").value;
  const seconds = Math.max(1, Math.min(10, Number(document.getElementById("flame-seconds").value) || 3));
  const waits = document.getElementById("flame-waits").checked ? "&waits=1" : "";
  const button = document.getElementById("flame-start"), state = document.getElementById("flame-state");
  button.disabled = true;
  state.textContent = `sampling ${actor} for ${seconds} s`;
  try {
    showFlame(await load(`flame.json?actor=${encodeURIComponent(actor)}&seconds=${seconds}${waits}`, (seconds + 5) * 1000));
    state.textContent = "";
  } catch (error) {
    state.textContent = `cannot sample: ${error.message}`;
  }
  button.disabled = false;
}

// Refreshing, only while the page is looked at

function keep(path, show, id, period) {
  let timer = null;
  const run = async () => {
    clearTimeout(timer);
    if (document.hidden) return;
    try {
      show(await load(path));
    } catch (error) {
      if (!document.getElementById(id).childElementCount) nothing(id, `no news: ${error.message}`);
    }
    clearTimeout(timer);
    timer = setTimeout(run, period);
  };
  document.addEventListener("visibilitychange", run);
  run();
}

document.getElementById("timeline-pod").addEventListener("change", showStart);
document.getElementById("flame-start").addEventListener("click", sample);
keep("graph.json", showGraph, "graph", GRAPH_MS);
keep("hour.json", showHour, "hour", SLOW_MS);
keep("timelines.json", showStarts, "timeline", SLOW_MS);
