// The editor's side: start the language server, show the plan and the page beside a program.

import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import * as path from "node:path";
import { promisify } from "node:util";
import * as vscode from "vscode";
import { LanguageClient, type LanguageClientOptions, type ServerOptions } from "vscode-languageclient/node";

const run = promisify(execFile);
const PLAN = "indexical-plan";

let client: LanguageClient | undefined;

export async function activate(context: vscode.ExtensionContext): Promise<void> {
    const plans = new Plans();
    context.subscriptions.push(
        vscode.workspace.registerTextDocumentContentProvider(PLAN, plans),
        vscode.workspace.onDidSaveTextDocument((saved) => plans.refresh(saved.uri)),
        vscode.commands.registerCommand("indexical.showPlan", () => plans.show()),
        vscode.commands.registerCommand("indexical.showPage", showPage),
        vscode.commands.registerCommand("indexical.restart", restart),
        vscode.workspace.onDidChangeConfiguration((change) => {
            if (change.affectsConfiguration("indexical.command")) {
                void restart();
            }
        }),
    );
    await start();
}

export async function deactivate(): Promise<void> {
    await client?.stop();
}

/** The words that start `ix`, and those of a request behind them. */
function command(...words: string[]): { program: string; words: string[] } {
    const [program = "ix", ...first] = vscode.workspace.getConfiguration("indexical").get<string[]>("command", ["ix"]);
    return { program, words: [...first, ...words] };
}

async function start(): Promise<void> {
    const { program, words } = command("lsp", "--stdio");
    const server: ServerOptions = { command: program, args: words };
    const options: LanguageClientOptions = {
        documentSelector: [
            { language: "ix" },
            { language: "markdown", scheme: "file" },
            { language: "python", scheme: "file" },
        ],
    };
    client = new LanguageClient("indexical", "Indexical", server, options);
    try {
        await client.start();
    } catch (problem) {
        client = undefined;
        const chosen = await vscode.window.showErrorMessage(
            `Indexical: \`${[program, ...words].join(" ")}\` could not be started (${words_of(problem)}). ` +
                "It comes with pip install 'indexical[lsp]'.",
            "Open the setting",
        );
        if (chosen !== undefined) {
            await vscode.commands.executeCommand("workbench.action.openSettings", "indexical.command");
        }
    }
}

async function restart(): Promise<void> {
    await client?.stop().catch(() => undefined);
    client = undefined;
    await start();
}

function words_of(problem: unknown): string {
    const found = problem as { stderr?: string; message?: string };
    return (found.stderr?.trim() || found.message || String(problem)).trim();
}

function activeProgram(): vscode.TextEditor | undefined {
    const editor = vscode.window.activeTextEditor;
    if (editor === undefined || !["ix", "markdown", "python"].includes(editor.document.languageId)) {
        void vscode.window.showInformationMessage("Indexical: open a program first.");
        return undefined;
    }
    return editor;
}

/** Plans as documents that nobody edits, each beside its program. */
class Plans implements vscode.TextDocumentContentProvider {
    private readonly changed = new vscode.EventEmitter<vscode.Uri>();
    readonly onDidChange = this.changed.event;
    private readonly places = new Map<string, vscode.Position>();

    async show(): Promise<void> {
        const editor = activeProgram();
        if (editor === undefined) {
            return;
        }
        const { uri } = editor.document;
        this.places.set(uri.toString(), editor.selection.active);
        const document = await vscode.workspace.openTextDocument(this.planOf(uri));
        this.changed.fire(this.planOf(uri));
        await vscode.window.showTextDocument(document, { viewColumn: vscode.ViewColumn.Beside, preserveFocus: true });
    }

    refresh(uri: vscode.Uri): void {
        if (this.places.has(uri.toString())) {
            this.changed.fire(this.planOf(uri));
        }
    }

    async provideTextDocumentContent(plan: vscode.Uri): Promise<string> {
        const uri = plan.query;
        const position = this.places.get(uri) ?? new vscode.Position(0, 0);
        const request = { textDocument: { uri }, position: { line: position.line, character: position.character } };
        const answer = await client?.sendRequest<{ plan: string | null }>("indexical/plan", request);
        return answer?.plan ?? "There is no plan: the program has an error, or none stands here.";
    }

    private planOf(uri: vscode.Uri): vscode.Uri {
        return vscode.Uri.from({ scheme: PLAN, path: `${path.basename(uri.path)}.plan`, query: uri.toString() });
    }
}

/** The page of a program: `ix show` evaluates it, so it needs a file that is saved and a workspace that is trusted. */
async function showPage(): Promise<void> {
    const editor = activeProgram();
    if (editor === undefined) {
        return;
    }
    if (!vscode.workspace.isTrusted) {
        void vscode.window.showWarningMessage("Indexical: the page evaluates the program; trust this workspace first.");
        return;
    }
    await editor.document.save();
    const folder = await mkdtemp(path.join(tmpdir(), "indexical-"));
    const file = path.join(folder, "page.html");
    const { program, words } = command("show", editor.document.fileName, "--random", "-o", file);
    try {
        const title = `The page of ${path.basename(editor.document.fileName)}`;
        await vscode.window.withProgress({ location: vscode.ProgressLocation.Window, title }, () => run(program, words));
        const panel = vscode.window.createWebviewPanel("indexical.page", title, vscode.ViewColumn.Beside, {
            enableScripts: true,
            enableFindWidget: true,
            localResourceRoots: [],
        });
        panel.webview.html = await readFile(file, "utf8");
    } catch (problem) {
        void vscode.window.showErrorMessage(`Indexical: ${words_of(problem)}`);
    } finally {
        await rm(folder, { recursive: true, force: true });
    }
}
