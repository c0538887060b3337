// A spoken call: the microphone through the gate, Micdrop's protocol over a WebSocket, and a player that stops at once.
"use strict";

class Player {
  constructor(context) {
    this.context = context;
    this.sources = new Set();
    this.next = 0;
    this.frames = 0;  // audio frames that were played
  }

  play(buffer) {
    const pcm = new Int16Array(buffer);
    if (!pcm.length) return;
    const audio = this.context.createBuffer(1, pcm.length, 16000), samples = audio.getChannelData(0);
    for (let at = 0; at < pcm.length; at++) samples[at] = pcm[at] / 32768;
    const source = new AudioBufferSourceNode(this.context, {buffer: audio});
    source.connect(this.context.destination);
    source.onended = () => this.sources.delete(source);
    // 50 ms ahead of now hides that frames come unevenly.
    this.next = Math.max(this.next, this.context.currentTime + 0.05);
    source.start(this.next);
    this.next += audio.duration;
    this.sources.add(source);
    this.frames += 1;
  }

  get playing() { return this.context.currentTime < this.next; }

  stop() {
    for (const source of this.sources) { source.onended = null; source.stop(); }
    this.sources.clear();
    this.next = 0;
  }
}

// `page` shows what happens: level, state, history, user, partial, assistant, tool, skip, cancelled, note, ended.
class VoiceCall {
  static async begin(url, page) {
    const wish = {echoCancellation: true, noiseSuppression: true, autoGainControl: true, channelCount: 1};
    const microphone = await navigator.mediaDevices.getUserMedia({audio: wish});
    const context = new AudioContext();
    await context.audioWorklet.addModule("gate.js");
    return new VoiceCall(url, page, microphone, context);
  }

  constructor(url, page, microphone, context) {
    Object.assign(this, {url, page, microphone, context, speaking: false, muted: false, over: false, wait: 250});
    this.player = new Player(context);
    this.gate = new AudioWorkletNode(context, "gate", {numberOfOutputs: 0});
    this.gate.port.onmessage = ({data}) => this.fromGate(data);
    context.createMediaStreamSource(microphone).connect(this.gate);
    this.connect();
  }

  connect() {
    this.socket = new WebSocket(this.url);
    this.socket.binaryType = "arraybuffer";
    this.socket.onmessage = ({data}) => typeof data === "string" ? this.fromServer(data) : this.audio(data);
    this.socket.onopen = () => this.page.state("listening");
    this.socket.onclose = ({code}) => {
      if (this.over) return;
      this.player.stop();
      if (code === 1000 || (code >= 4400 && code < 4500)) return this.end();
      this.page.state("connecting again");
      setTimeout(() => this.over || this.connect(), this.wait = Math.min(this.wait * 2, 8000));
    };
  }

  send(frame) { if (this.socket.readyState === WebSocket.OPEN) this.socket.send(frame); }

  fromGate({level, start, audio, stop}) {
    if (level !== undefined) this.page.level(level);
    if (start) {
      const interrupted = this.player.playing;
      this.player.stop();
      this.speaking = true;
      this.send("StartSpeaking");
      this.page.speaking(interrupted);
    }
    if (audio && this.speaking) this.send(audio);
    if (stop && this.speaking) {
      this.speaking = false;
      this.stopped = performance.now();
      this.send("StopSpeaking");
      this.page.state("thinking");
    }
  }

  audio(buffer) {
    if (this.speaking) return;
    if (this.stopped) {
      this.page.delay(performance.now() - this.stopped);
      this.stopped = null;
    }
    this.player.play(buffer);
    this.page.state("answering");
    clearTimeout(this.quiet);
    this.quiet = setTimeout(() => this.over || this.speaking || this.page.state("listening"),
      (this.player.next - this.context.currentTime) * 1000 + 100);
  }

  fromServer(frame) {
    const space = frame.indexOf(" "), name = space < 0 ? frame : frame.slice(0, space);
    const value = space < 0 ? null : JSON.parse(frame.slice(space + 1));
    const react = {
      History: () => { this.wait = 250; this.page.history(value); },
      Message: () => this.page.item(value),
      PartialAssistantMessage: () => this.page.partial(value),
      SkipAnswer: () => { this.stopped = null; this.page.skip(); this.page.state("listening"); },
      CancelLastUserMessage: () => this.page.cancelled(),
      EndCall: () => this.hangUp(),
      Note: () => this.page.note(value),
    };
    react[name]?.();
  }

  // The farewell is played to its end.
  hangUp() {
    setTimeout(() => this.over || (this.end(), this.page.ended()),
      Math.max(0, this.player.next - this.context.currentTime) * 1000 + 200);
  }

  say(text) {
    this.player.stop();
    this.stopped = performance.now();
    this.send(`Say ${JSON.stringify({text})}`);
    this.page.state("thinking");
  }

  mute(muted) {
    this.muted = muted;
    this.gate.port.postMessage({mute: muted});
    if (muted) { this.speaking = false; this.player.stop(); this.send("Mute"); }
  }

  end() {
    if (this.over) return;
    this.over = true;
    this.player.stop();
    this.socket.close(1000);
    for (const track of this.microphone.getTracks()) track.stop();
    this.context.close();
    this.page.closed();
  }
}
