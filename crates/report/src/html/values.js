{
  // Tells the numbers at one place of a figure, which the pointer or the slider chooses.
  const isShown = (mark) => mark.getClientRects().length > 0;
  for (const told of document.querySelectorAll('.told')) {
    const figure = told.parentElement;
    const marks = [...figure.querySelectorAll('[data-x]')];
    const places = [...new Set(marks.map((mark) => mark.dataset.x))].sort((a, b) => a - b);
    const slider = figure.querySelector('.slider input');
    const show = () => {
      const place = places[slider.value];
      const chosen = marks.filter((mark) => mark.dataset.x === place && isShown(mark));
      for (const mark of marks) mark.classList.toggle('chosen', chosen.includes(mark));
      told.replaceChildren(...chosen.map((mark) => {
        const line = document.createElement('li');
        line.className = mark.parentElement.classList[1];
        line.textContent = mark.textContent;
        return line;
      }));
      slider.setAttribute('aria-valuetext', chosen.map((mark) => mark.textContent).join('; '));
    };
    const point = ({ target, clientX }) => {
      const away = (mark) => {
        const { left, right } = mark.getBoundingClientRect();
        return Math.abs((left + right) / 2 - clientX);
      };
      const near = marks.filter((mark) => target.closest('svg')?.contains(mark) && isShown(mark));
      if (near.length === 0) return;
      const nearest = near.reduce((one, other) => (away(other) < away(one) ? other : one));
      slider.value = places.indexOf(nearest.dataset.x);
      show();
    };
    slider.max = places.length - 1;
    slider.parentElement.hidden = false;
    slider.addEventListener('input', show);
    slider.addEventListener('focus', show);
    figure.addEventListener('pointermove', point);
    figure.addEventListener('pointerdown', point);
  }
}
