// A Worker in a hidden frame, for the search of the site where it is opened as files: browsers start no Worker from a file.
// The search's script looks for this name; mkdocs-material would fetch such a class from a server.
window.IFrameWorker = class extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.appendChild(this.frame);
    const inside = this.frame.contentWindow;
    inside.importScripts = (...scripts) =>
      scripts.reduce((before, script) => before.then(() => new Promise((done) => load(script).addEventListener("load", done))), Promise.resolve());
    inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    const load = (script) => {
      const element = inside.document.createElement("script");
      element.src = script;
      return inside.document.body.appendChild(element);
    };
    this.ready = new Promise((done) => load(new URL(url, location)).addEventListener("load", done));
  }
  postMessage(data) {
    this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
  }
  terminate() {
    this.frame.remove();
  }
};
if (location.protocol === "file:") window.Worker = window.IFrameWorker;
