/* Modules the build makes, see build/build.mjs. */
declare module "virtual:icons/core" {
  /** name → its shapes as [tag, attributes] */
  const icons: Record<string, [string, Record<string, string>][]>;
  export default icons;
}
declare module "virtual:icons/shards" {
  /** first letter → loader of every icon whose name starts with it */
  const shards: Record<string, () => Promise<{ default: Record<string, [string, Record<string, string>][]> }>>;
  export default shards;
}
