// The search of the site runs in a worker, and browsers refuse workers to pages that were opened from disk.
// There, this one takes the worker's place: it runs the script in a frame of the same page. The theme asks whether
// `IFrameWorker` exists, and waits for the promise of importScripts where it does.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = [] // messages to a script that has not been loaded yet; null from then on
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.title = "search"
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      inside.importScripts = async (...scripts) => {
        for (const script of scripts) await this.load(script)
      }
      this.load(url).then(() => {
        const messages = this.waiting
        this.waiting = null
        messages.forEach(data => this.postMessage(data))
      })
    }

    load(url) {
      return new Promise((done, failed) => {
        const script = this.frame.contentDocument.createElement("script")
        script.src = url
        script.onload = done
        script.onerror = () => failed(new Error(`cannot load ${url}`))
        this.frame.contentDocument.body.append(script)
      })
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }))
    }
  }
  window.Worker = window.IFrameWorker
}
