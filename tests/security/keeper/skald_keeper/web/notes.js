export default class extends HTMLElement {}
