// The pages of a run, in the order of their tabs and of the keys Alt + 1, 2 and so on. To add a page,
// write its script and put its class here.
//
// A page is a class with
//   static place, title   its address after the #, and what its tab says
//   static rail           whether the list of groups is beside it
//   static keys           its own keys for the help, as [key, what it does]; may be missing
//   constructor(shell)    shell.go(place, group) goes elsewhere; shell.changed() after another group is shown
//   node                  its element
//   draw(group)           shows the run and its groups as they are. group: the id chosen in the list, or "all"
// and, where it has any use for them,
//   listed()              what the list of groups marks: an id, "all" or null
//   choose(id)            what a click in the list does; without it, one goes to the page of groups
//   show(id)              goes to a group, after an edit made it
//   group(), row()        the id and the image that keys are for, or null
//   key(event)            does what a key of its own does, and returns whether it did
//   focus()               takes the focus of the keyboard

import { ExportPage } from "./exportpage.js";
import { GroupsPage } from "./groupspage.js";
import { MapPage } from "./mappage.js";
import { NewPage } from "./newpage.js";
import { QueuePage } from "./queuepage.js";
import { TreePage } from "./treepage.js";

export const PAGES = [GroupsPage, MapPage, TreePage, QueuePage, NewPage, ExportPage];
