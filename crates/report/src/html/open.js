{
  // Opens a stretch in the Perfetto UI: a new tab, which is handed the trace once it answers.
  const site = 'https://ui.perfetto.dev';
  const PATIENCE_MS = 60000;
  const unpacked = (text) => {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
    return new Response(stream).arrayBuffer();
  };
  for (const button of document.querySelectorAll('button[data-trace]')) {
    button.hidden = false;
    button.addEventListener('click', () => {
      const told = document.getElementById(`${button.dataset.trace}-told`);
      const other = window.open(site);
      if (!other) {
        told.textContent = 'The browser opened no tab.';
        return;
      }
      const buffer = unpacked(document.getElementById(button.dataset.trace).textContent);
      const until = Date.now() + PATIENCE_MS;
      const heard = async (event) => {
        if (event.source !== other || event.origin !== site || event.data !== 'PONG') return;
        done();
        const perfetto = { buffer: await buffer, title: button.dataset.title };
        other.postMessage({ perfetto }, site);
        told.textContent = 'Handed over.';
      };
      const ask = setInterval(() => {
        if (Date.now() < until) {
          other.postMessage('PING', site);
        } else {
          done();
          told.textContent = 'The Perfetto UI does not answer.';
        }
      }, 50);
      const done = () => {
        clearInterval(ask);
        window.removeEventListener('message', heard);
      };
      window.addEventListener('message', heard);
      told.textContent = 'Waits for the Perfetto UI.';
    });
  }
}
