// The search takes each word for the beginning of one, so that "in" finds int8 and "tensors" tensorrt, but not tensor. So it is asked
// without the words that every question has, and for short words in both numbers: a word with a boost, as in "tensor^1", is a whole one.
(() => {
  const FILLERS = new Set(("a about all am an and any are as at be been by can cannot could did do does doing done for from get got had has have how i " +
    "if in into is it its just like make many may me mean means might more most much must my need needs no not of on or our over per please see should show so some " +
    "tell than that the their them then there these they this those to too up us use used uses using very want was we were what when where which while " +
    "who why will with without would you your").split(" "));
  const whole = (word) => [word, /(?:[^s]s|[xh]es)$/.test(word) ? word.replace(/(?<=[xh])es$|s$/, "") : `${word}s`].map((form) => `${form}^1`);
  const asked = (word, _, words) => (word.length > 7 || words.length === 1 ? [word.replace(/s$|ing$/, "")] : whole(word));
  const box = document.querySelector(".md-search__input");
  const { get, set } = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value");
  Object.defineProperty(box, "value", {
    set,
    get() {
      const typed = get.call(this);
      const words = typed.toLowerCase().split(/[\s?!,;^~*:"-]+/).filter((word) => word && !FILLERS.has(word));
      return words.flatMap(asked).join(" ") || typed;
    },
  });
})();
