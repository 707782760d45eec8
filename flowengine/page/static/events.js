// The events of all executions, for all tabs of this browser: one tab holds the stream and passes the
// events on. A browser has few connections to a server, and a stream in each tab would use them up.
const AGAIN = 5000;
const channel = new BroadcastChannel("flowengine events");
let last = null;
let tell = () => {};

// Calls `changed` with the id of each execution that has an event, and with null if events may have
// been missed. Calls `lost` with whether the connection is lost.
export function listen(changed, lost) {
  tell = (message) => {
    if (message.number) last = message.number;
    if ("lost" in message) lost(message.lost);
    else changed(message.execution);
  };
  channel.onmessage = (event) => tell(event.data);
  navigator.locks.request(channel.name, () => new Promise(hold));
  tell({ execution: null }); // what happened since this page was rendered
}

// Holds the stream until this tab is closed. The tab that then holds it continues behind the last
// event. The server also refuses it, if the session has ended.
function hold() {
  const source = new EventSource(`/v1/events?brief=true${last === null ? "" : `&after=${last}`}`);
  source.onopen = () => {
    pass({ lost: false });
    if (last === null) pass({ execution: null });
  };
  source.onerror = () => {
    pass({ lost: true });
    if (source.readyState !== EventSource.CLOSED) return;
    pass({ execution: null });
    setTimeout(hold, AGAIN);
  };
  source.addEventListener("entry", (event) => {
    const { number, execution } = JSON.parse(event.data);
    pass({ number, execution });
  });
}

function pass(message) {
  tell(message);
  channel.postMessage(message);
}
