// A sentence of the documentation names its subject: none begins with a word that stands for
// something of the sentence before. A question may begin with any word.
const { splitAST, SentenceSplitterSyntax } = require("sentence-splitter");

const BANNED =
  /^(Who|Whoever|Whose|Whatever|What|The same|See there|Such|So (does|do|is|are|has|have|it))\b/;

module.exports = (context) => {
  const { Syntax, RuleError, getSource, report } = context;
  return {
    [Syntax.Paragraph](node) {
      const sentences = splitAST(node).children.filter(
        (child) => child.type === SentenceSplitterSyntax.Sentence,
      );
      for (const sentence of sentences) {
        const text = getSource(sentence).replace(/^[*_`]+/, "");
        const found = BANNED.exec(text);
        if (found && !text.includes("?")) {
          report(sentence, new RuleError(`A sentence begins with "${found[1]}": name its subject`));
        }
      }
    },
  };
};
