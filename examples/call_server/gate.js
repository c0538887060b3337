// Runs beside the page, on the thread of the audio: cuts the microphone into speech and silence.
//
//   samples ──▶ 16 kHz ──▶ frames of 20 ms ──▶ is it louder than the room? ──▶ start, 100 ms of audio at a time, stop
//
// Speech begins after 100 ms that are loud enough, and what came 300 ms before is sent with it; it ends after 700 ms
// that are not. The room's own noise is learned all the time.
"use strict";

const RATE = 16000, FRAME = 320, PACKET = 1600, BEFORE = 4800;
const START_FRAMES = 5, STOP_FRAMES = 35, QUIETEST = 0.008, LOUDER = 3;

class Gate extends AudioWorkletProcessor {
  constructor() {
    super();
    this.frame = new Float32Array(FRAME);
    this.filled = 0;
    this.at = 0;       // where the next sample stands among those of the microphone
    this.last = 0;
    this.floor = 0.003;
    this.loud = 0;
    this.quiet = 0;
    this.speaking = false;
    this.muted = false;
    this.queue = [];   // samples that wait to be sent
    this.port.onmessage = ({data}) => {
      if (data.mute === undefined) return;
      this.muted = data.mute;
      if (this.muted) { this.speaking = false; this.loud = 0; this.queue = []; }
    };
  }

  process([input]) {
    const samples = input[0];
    if (!samples) return true;
    // Between two samples lies a straight line, and over a longer step their mean: enough for speech.
    const step = sampleRate / RATE;
    while (this.at < samples.length) {
      const end = Math.floor(this.at), start = Math.max(0, Math.ceil(this.at - step + 1));
      let sum = 0;
      for (let one = start; one <= end; one++) sum += samples[one];
      this.push(end >= start ? sum / (end - start + 1) : this.last);
      this.at += step;
    }
    this.at -= samples.length;
    this.last = samples[samples.length - 1];
    return true;
  }

  push(sample) {
    this.frame[this.filled++] = sample;
    if (this.filled < FRAME) return;
    this.filled = 0;
    this.heard(Math.sqrt(this.frame.reduce((sum, one) => sum + one * one, 0) / FRAME));
  }

  heard(level) {
    this.port.postMessage({level});
    if (this.muted) return;
    for (const sample of this.frame) this.queue.push(Math.max(-32768, Math.min(32767, Math.round(sample * 32767))));
    const loud = level > Math.max(QUIETEST, this.floor * LOUDER);
    if (!loud) this.floor += (level - this.floor) * (level < this.floor ? 0.2 : 0.02);
    this.loud = loud ? this.loud + 1 : 0;
    this.quiet = loud ? 0 : this.quiet + 1;
    if (!this.speaking && this.loud >= START_FRAMES) {
      this.speaking = true;
      this.port.postMessage({start: true});
    }
    if (!this.speaking) {
      if (this.queue.length > BEFORE) this.queue.splice(0, this.queue.length - BEFORE);
      return;
    }
    while (this.queue.length >= PACKET) {
      const packet = Int16Array.from(this.queue.splice(0, PACKET)).buffer;
      this.port.postMessage({audio: packet}, [packet]);
    }
    if (this.quiet >= STOP_FRAMES) {
      this.speaking = false;
      this.port.postMessage({stop: true});
    }
  }
}

registerProcessor("gate", Gate);
