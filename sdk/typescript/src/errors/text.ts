// Text of a server, made fit to be shown.

/** Replaces control characters, which could rewrite a terminal, except line feeds. */
export function printable(text: string): string {
  return text.replace(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/g, ' ');
}
