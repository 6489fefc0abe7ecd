export default class extends HTMLElement {
  connectedCallback() {
    throw new Error("this page is broken on purpose");
  }
}
