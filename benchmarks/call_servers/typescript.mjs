// The original server, with parts that do what those of micdrop_agent_server.py do.
//   node typescript.mjs PORT        with @micdrop/server and ws in node_modules of this folder or the working directory
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const from = createRequire(pathToFileURL(process.cwd() + '/'))
const { Agent, MicdropServer, STT, TTS } = await import(pathToFileURL(from.resolve('@micdrop/server')))
const { WebSocketServer } = from('ws')

class Words extends Agent {
  constructor(endless) {
    super({ systemPrompt: '' })
    this.endless = endless
  }
  async generateAnswer(stream) {
    this.said = stream
    stream.write('This is what I have to say. ')
    while (this.endless && this.said === stream) {
      await new Promise((resolve) => setTimeout(resolve, 100))
      if (this.said === stream) stream.write('more ')
    }
  }
  cancel() {
    this.said = undefined
  }
}

class Ear extends STT {
  transcribe(audio) {
    audio.on('data', () => {})
    audio.on('end', () => this.emit('Transcript', 'What do you have to say?'))
  }
}

class Stamping extends TTS {
  speak(text) {
    this.text = text
    text.on('data', () => {
      if (this.text !== text) return
      const frame = Buffer.alloc(3200)
      frame.writeBigInt64LE(process.hrtime.bigint())
      this.emit('Audio', frame)
    })
  }
  cancel() {
    this.text = undefined
  }
}

class Torrent extends TTS {
  speak(text) {
    text.on('data', () => {
      this.timer ??= setInterval(() => this.emit('Audio', Buffer.alloc(640)), 2)
    })
  }
  cancel() {
    clearInterval(this.timer)
    this.timer = undefined
  }
}

new WebSocketServer({ host: '127.0.0.1', port: Number(process.argv[2]) }).on('connection', (socket, request) => {
  const tts = request.url === '/torrent' ? new Torrent() : new Stamping()
  new MicdropServer(socket, { agent: new Words(request.url === '/talk'), stt: new Ear(), tts })
})
