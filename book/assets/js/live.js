// Brings the explorers and questions of a page to life. It knows no formula and no words: it sends what stands in the
// controls to memtier, which runs in a web worker, and puts what comes back into its places (memtier/live/page.py).

const WORKER = new URL("../../live/worker.js", import.meta.url); // this file is <site>/_static/js/live.js
const PATIENCE = 20000; // ms until a call is given up; starting has no such limit, a slow line may need minutes
const SETTLED = 600; // ms without a new answer until the answer is announced

// One Python for the whole page.
const python = {
  worker: null,
  started: false,
  waiting: new Map(),
  serial: 0,
  asker: null, // the Live that announces what becomes of Python: one of them, though all of them show it

  // live: what the reader is about to use; a first answer thrown away spares the wait for what is loaded but once.
  boot(live) {
    this.asker = live;
    if (this.worker) return;
    this.show("starting");
    this.worker = new Worker(WORKER, { type: "module" });
    this.worker.onmessage = ({ data }) => {
      if (data.started) {
        this.started = true;
        this.waiting.forEach((call) => call.hurry());
        return this.show("ready");
      }
      if (data.broken) return this.stop("failed");
      const call = this.waiting.get(data.id);
      if (!call) return;
      this.waiting.delete(data.id);
      clearTimeout(call.timer);
      if (data.failed) call.reject(new Error(data.failed));
      else call.resolve(JSON.parse(data.reply));
    };
    this.worker.onerror = () => this.stop("failed");
    this.worker.postMessage({ id: 0, ask: JSON.stringify({ name: live.name }) });
  },

  stop(why) {
    this.worker?.terminate();
    this.worker = null;
    this.started = false;
    for (const call of this.waiting.values()) {
      clearTimeout(call.timer);
      call.reject(null); // the line about Python says why
    }
    this.waiting.clear();
    this.show(why);
  },

  call(ask, live) {
    this.boot(live);
    return new Promise((resolve, reject) => {
      const id = ++this.serial;
      const call = { resolve, reject };
      call.hurry = () => (call.timer = setTimeout(() => this.stop("lost"), PATIENCE));
      this.waiting.set(id, call);
      if (this.started) call.hurry();
      this.worker.postMessage({ id, ask: JSON.stringify(ask) });
    });
  },

  show(state) {
    for (const line of document.querySelectorAll("[data-boot]")) {
      line.dataset.state = state;
      line.querySelector("[data-words]").textContent = line.dataset[state];
      line.querySelector("[data-retry]").hidden = state === "starting" || state === "ready";
    }
    this.asker?.announce(this.asker.root.querySelector("[data-words]").textContent);
  },
};

class Live {
  static serial = 0;

  constructor(root) {
    this.root = root;
    this.name = root.dataset.live;
    root.dataset.on = "";
    this.state = JSON.parse(root.dataset.state);
    this.busy = false;
    this.todo = []; // buttons pressed while a call was in flight; changes need no list, the latest value wins
    this.changed = false;
    this.last = {}; // of each control, the part that was touched last
    this.used = null; // the input or button that was used last
    this.link();
    root.addEventListener("input", (event) => this.input(event));
    root.addEventListener("change", (event) => this.change(event));
    root.addEventListener("click", (event) => this.click(event));
    root.addEventListener("submit", (event) => event.preventDefault());
    // Python starts before the first click. A finger that only scrolls past does not set off a download.
    const boot = () => python.boot(this);
    root.addEventListener("focusin", (event) => event.target.matches("[data-part]") && boot());
    root.addEventListener("pointerenter", (event) => {
      if (event.pointerType === "mouse" && !navigator.connection?.saveData) boot();
    });
    root.addEventListener("pointerdown", (event) => event.target.closest("[data-control], [data-do]") && boot());
  }

  // Ties each sentence about a wrong value to its inputs; ids are given here, so that a page can show a thing twice.
  link() {
    for (const control of this.root.querySelectorAll("[data-control]")) {
      const error = control.querySelector("[data-error]");
      error.id ||= `mt-error-${++Live.serial}`;
      for (const part of control.querySelectorAll("[data-part]")) part.setAttribute("aria-describedby", error.id);
    }
  }

  // What stands in the controls: {control: {part: value, last: part}}.
  values() {
    const values = {};
    for (const control of this.root.querySelectorAll("[data-control]")) {
      const raw = { last: this.last[control.dataset.control] ?? "" };
      for (const part of control.querySelectorAll("[data-part]")) {
        const name = part.dataset.part;
        if (part.type === "radio") raw[name] = part.checked ? part.value : raw[name] ?? "";
        else if (part.type === "checkbox" && part.name) raw[name] = (raw[name] ?? []).concat(part.checked ? part.value : []);
        else raw[name] = part.type === "checkbox" ? part.checked : part.value;
      }
      values[control.dataset.control] = raw;
    }
    return values;
  }

  // Shows values in the controls, but takes nothing out of a reader's hand.
  fill(controls, force = false) {
    for (const [name, parts] of Object.entries(controls)) {
      const control = this.root.querySelector(`[data-control="${name}"]`);
      for (const part of control?.querySelectorAll("[data-part]") ?? []) {
        const value = parts[part.dataset.part];
        const held = part === document.activeElement && part.matches("[type=text], [type=range], textarea");
        if (value === undefined || (held && !force)) continue;
        if (part.type === "radio") part.checked = part.value === value;
        else if (part.type === "checkbox") part.checked = part.name ? value.includes(part.value) : value;
        else part.value = value;
        if (part.type === "range") part.setAttribute("aria-valuetext", parts.text); // exact; the thumb is the nearest
      }
      if (force) delete this.last[name];
      if (control) this.fold(control);
    }
  }

  say(range) {
    range.setAttribute("aria-valuetext", range.dataset.says.split("|")[range.value]);
  }

  // Shows the parts that belong to what is chosen (data-when="choice=own").
  fold(control) {
    for (const part of control.querySelectorAll("[data-when]")) {
      const [name, value] = part.dataset.when.split("=");
      part.hidden = control.querySelector(`[data-part="${name}"]`).value !== value;
    }
  }

  touched(part) {
    const control = part.closest("[data-control]");
    this.last[control.dataset.control] = part.dataset.part;
    this.used = part;
    this.fold(control);
    return control;
  }

  input({ target }) {
    if (!target.matches("[data-part]:not([type=text], textarea)")) return;
    const control = this.touched(target);
    if (target.type === "range") {
      this.say(target);
      control.querySelector('[data-part="text"]').value = target.getAttribute("aria-valuetext");
    }
    this.ask();
  }

  async change({ target }) {
    if (target.dataset.into) {
      const area = target.closest("[data-control]").querySelector(`[data-part="${target.dataset.into}"]`);
      area.value = target.files.length ? await target.files[0].text() : "";
      this.touched(area);
    } else if (target.matches("[data-part][type=text], textarea")) this.touched(target);
    else return;
    this.ask();
  }

  click({ target }) {
    if (target.closest("[data-retry]")) {
      this.focus(); // the button is about to vanish
      python.stop("starting");
      return this.ask();
    }
    if (target.dataset.into) target.value = ""; // so that the same file, edited, counts as a change
    const button = target.closest("[data-do]");
    if (!button) return;
    this.used = button;
    if (!button.matches("[data-shows]")) return this.ask(button.dataset.do);
    const frame = this.root.querySelector(`[data-frame="${button.dataset.do}"]`);
    // A drawn frame answers at once, and Python draws it again where there is more to say (a guess, a reader's file).
    this.fill(JSON.parse(frame.dataset.controls), true);
    for (const drawn of frame.querySelectorAll("[data-fill]")) this.put(drawn.dataset.fill, drawn.innerHTML);
    this.invalid({});
    this.problem("");
    this.stale(false);
    if (python.started || this.busy) this.ask();
    else python.boot(this);
    this.announce(frame.dataset.say);
  }

  // Never more than one call in flight: what changes meanwhile goes out together when the answer is in.
  async ask(what = "") {
    if (what) this.todo.push(what);
    else this.changed = true;
    if (this.busy) return;
    this.busy = true;
    this.root.setAttribute("aria-busy", "true");
    try {
      while (this.todo.length || this.changed) {
        const next = this.todo.shift() ?? "";
        this.changed = false;
        const ask = { name: this.name, do: next, values: this.values(), state: this.state };
        this.show(await python.call(ask, this), next);
      }
    } catch (error) {
      this.todo = [];
      this.changed = false;
      if (error) {
        this.problem(error.message);
        this.announce(error.message);
      }
    }
    this.busy = false;
    this.root.removeAttribute("aria-busy");
  }

  show(reply, what) {
    this.invalid(reply.invalid ?? {});
    this.stale(Boolean(reply.invalid || reply.error));
    if (reply.invalid) return this.announce(Object.values(reply.invalid).join(" "));
    this.problem(reply.error ?? "");
    if (reply.error) return this.announce(reply.error);
    this.state = reply.state;
    for (const [slot, html] of Object.entries(reply.slots)) this.put(slot, html);
    // While newer values wait, what stands in the controls is ahead of this answer.
    if (!this.changed) this.fill(reply.controls, Boolean(what));
    for (const [group, hidden] of Object.entries(reply.hidden)) {
      const part = this.root.querySelector(`[data-group="${group}"]`);
      const focused = part.contains(document.activeElement);
      part.hidden = hidden;
      if (hidden && focused) this.root.querySelector(".mt-fields:not([data-group] *) [data-part]")?.focus();
    }
    this.announce(reply.say);
  }

  put(slot, html) {
    const place = this.root.querySelector(`[data-slot="${slot}"]`);
    const open = [...place.querySelectorAll("details")].map((each) => each.open); // a table a reader unfolded stays so
    place.innerHTML = html;
    place.querySelectorAll("details").forEach((each, index) => (each.open = open[index] ?? false));
  }

  invalid(sentences) {
    for (const control of this.root.querySelectorAll("[data-control]")) {
      const sentence = sentences[control.dataset.control] ?? "";
      const error = control.querySelector("[data-error]");
      error.textContent = sentence;
      error.hidden = !sentence;
      if (sentence) error.closest("details")?.setAttribute("open", "");
      for (const part of control.querySelectorAll("input[type=text], textarea, select")) {
        part.setAttribute("aria-invalid", String(Boolean(sentence)));
      }
    }
  }

  // Marks what is shown as older than what stands in the controls.
  stale(stale) {
    this.root.toggleAttribute("data-stale", stale);
    const note = this.root.querySelector("[data-note]");
    if (note) note.hidden = !stale;
  }

  // Puts the focus back where the reader was, or else on the whole.
  focus() {
    this.used?.focus();
    if (this.used && document.activeElement === this.used) return;
    this.root.tabIndex = -1;
    this.root.focus();
  }

  problem(sentence) {
    const place = this.root.querySelector("[data-problem]");
    place.textContent = sentence;
    place.hidden = !sentence;
  }

  announce(text) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => (this.root.querySelector("[data-status]").textContent = text), SETTLED);
  }
}

document.querySelectorAll("[data-live]").forEach((root) => new Live(root));
